#include "training_on_shards.h"

// Tests of parameters that are frozen, or made trainable, after the optimizer was made.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(T5_1_frozen_since);

// Freezes or unfreezes the parameters whose name begins with `prefix`.
void set_trainable(const Units& units, const std::string& prefix, bool trainable) {
  for (const auto& unit : units) {
    for (const auto& [name, tensor] : unit->parameters()) {
      if (name.starts_with(prefix)) at::Tensor(tensor).set_requires_grad(trainable);
    }
  }
}

void step(const TrainedUnits& trained) {
  reduce_all_gradients(trained.units);
  trained.optimizer->step();
  trained.optimizer->zero_grad();
}

// Makes three steps with gradients of ones in one process. In the second step, the parameters whose
// name begins with `prefix` are not updated if `left_out` is true, and otherwise get zeros as
// gradients.
RankRun three_steps(const OptimizerOptions& options, const std::string& prefix, bool left_out) {
  return run_oracle([&](TestRank& rank) {
    const at::NoGradGuard no_grad;
    const std::vector<ParameterGroup> groups{{'^' + prefix, options}, {"", options}};
    OneProcess model(groups);
    for (const int step : {1, 2, 3}) {
      for (size_t i = 0; i < kParameters.size(); ++i) {
        const bool frozen = step == 2 && kParameters[i].name.starts_with(prefix);
        model.gradients[i].fill_(frozen ? 0 : 1);
      }
      if (step != 2 || !left_out) update(options, model.pieces[0]);
      update(options, model.pieces[1]);
    }
    for (size_t i = 0; i < kParameters.size(); ++i)
      rank.observe(kParameters[i].name + after(3), model.values[i]);
  });
}

// Makes three steps on the ranks. In the second step, the parameters whose name begins with
// `prefix` are frozen.
RankRun three_steps_on_ranks(int world_size, const OptimizerOptions& options,
                             const std::string& prefix) {
  return run_ranks(world_size, [&](TestRank& rank) {
    const TrainedUnits trained(rank, {{"", options}});
    step(trained);
    set_trainable(trained.units, prefix, false);
    rank.observe("what the second step throws", thrown_by([&] { step(trained); }));
    set_trainable(trained.units, prefix, true);
    step(trained);
    observe_parameters(rank, trained.units, "", after(3));
  });
}

void expect_three_steps(int world_size, const std::string& prefix, bool left_out) {
  for (const OptimizerOptions& options : {adamw(), sgd()}) {
    const RankRun run = three_steps_on_ranks(world_size, options, prefix);
    expect_on_all_ranks(run, "what the second step throws", kNothingThrown);
    expect_as(run, three_steps(options, prefix, left_out));
  }
}

MULTI_RANK_TEST(T5_1_frozen_since, the_step_does_not_update_a_unit_frozen_for_this_step) {
  expect_three_steps(world_size(), "b.", /*left_out=*/true);
}

MULTI_RANK_TEST(T5_1_frozen_since,
                a_parameter_that_is_frozen_for_one_step_is_decayed_if_its_unit_stays_trainable) {
  expect_three_steps(world_size(), "c.weight", /*left_out=*/false);
}

MULTI_RANK_TEST(T5_1_frozen_since, no_step_updates_a_unit_frozen_before_the_first_step) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const TrainedUnits trained(rank);
    set_trainable(trained.units, "b.", false);
    rank.observe("what the step throws", thrown_by([&] { step(trained); }));
    set_trainable(trained.units, "b.", true);
    observe_old_values(rank, trained.units);
  });
  expect_on_all_ranks(run, "what the step throws", kNothingThrown);
  expect_on_all_ranks(run, kOldValues, "b.weight b.bias ");
}

MULTI_RANK_TEST(T5_1_frozen_since, a_unit_that_was_frozen_after_its_backward_is_updated) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const TrainedUnits trained(rank);
    reduce_all_gradients(trained.units);
    set_trainable(trained.units, "b.", false);
    trained.optimizer->step();
    set_trainable(trained.units, "b.", true);
    observe_old_values(rank, trained.units);
  });
  expect_no_old_values(run);
}

MULTI_RANK_TEST(T5_1_frozen_since,
                a_parameter_that_becomes_trainable_after_the_optimizer_was_made_is_not_updated) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const TrainedUnits trained(rank);
    set_trainable(trained.units, "d.fixed", true);
    set_trainable(trained.units, "c.fixed", true);
    step(trained);
    std::string moved;
    const auto before = make_parameters();
    for (size_t i = 0; const auto& unit : trained.units) {
      unit->unshard();
      for (const auto& [name, tensor] : unit->parameters()) {
        if (!before[i++].tensor.equal(tensor) && name.ends_with("fixed")) moved += name + " ";
      }
      unit->reshard();
    }
    rank.observe("parameters that were frozen when the optimizer was made, and moved", moved);
    observe_old_values(rank, trained.units);
  });
  expect_on_all_ranks(run, "parameters that were frozen when the optimizer was made, and moved",
                      "");
  expect_no_old_values(run);
}

}  // namespace
}  // namespace fsdp
