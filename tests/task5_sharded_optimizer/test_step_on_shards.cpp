#include <testing/call_text.h>
#include <testing/kernel_calls.h>
#include <testing/shared_flag.h>

#include "training_on_shards.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T5_1_step_on_shards);

// Every element is 0 at first. Parameter i has the gradient i + 1, and a step subtracts it. The
// parameters named "bias" are a group of their own, so more pieces (parts of a shard that are
// updated at once) begin in the middle of a shard.
MULTI_RANK_TEST(T5_1_step_on_shards, a_step_updates_each_parameter_by_its_own_gradient) {
  const auto moved = [](size_t i) {
    return "how far " + kParameters[i].name + " moved, whose gradient is " + std::to_string(i + 1) +
           " (twice as far if two pieces contain it)";
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    std::vector<NamedParameter> parameters;
    for (const auto& [name, sizes, trainable] : kParameters)
      parameters.push_back({name, at::zeros(sizes).set_requires_grad(trainable)});
    const auto units = make_units(rank, parameters);
    OptimizerOptions options = sgd(0);
    options.lr = 1;
    const auto optimizer =
        make_sharded_optimizer(units, {{"bias", options}, {"", options}}, rank.communicator());
    reduce_gradients(units, [](size_t i) {
      return at::full(kParameters[i].sizes, static_cast<double>(i + 1), at::kFloat);
    });
    optimizer->step();
    for (const auto& unit : units)
      unit->unshard();
    for (size_t i = 0; i < parameters.size(); ++i)
      rank.observe(moved(i), 0 - parameters[i].tensor.detach());
  });
  const RankRun expected = run_oracle([&](TestRank& rank) {
    for (size_t i = 0; i < kParameters.size(); ++i) {
      const auto [name, sizes, trainable] = kParameters[i];
      rank.observe(moved(i),
                   at::full(sizes, trainable ? static_cast<double>(i + 1) : 0, at::kFloat));
    }
  });
  for (size_t i = 0; i < kParameters.size(); ++i)
    expect_on_all_ranks(run, moved(i), expected.at(0, moved(i)));
}

// A wrong solution may update a piece (a part of a shard) that is too long: longer by its offset,
// or as long as another piece. The sizes of the parameters are chosen so that such a piece ends
// exactly where a parameter begins. Each trainable parameter has a gradient of ones.
MULTI_RANK_TEST(T5_1_step_on_shards,
                a_step_leaves_frozen_parameters_between_trainable_ones_unchanged) {
  struct Part {
    std::string name;
    int64_t numel;
    bool trainable;
  };
  const std::vector<std::vector<Part>> units_of_parts{
      {{"u.first fixed", 64, false},
       {"u.long", 64, true},
       {"u.second fixed", 16, false},
       {"u.short", 16, true},
       {"u.third fixed", 48, false},
       {"u.last", 16, true}},
      {{"v.short", 16, true}, {"v.fixed", 64, false}, {"v.last", 16, true}}};
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    Units units;
    for (const auto& parts : units_of_parts) {
      std::vector<NamedParameter> parameters;
      for (const Part& part : parts)
        parameters.push_back({part.name, at::ones({part.numel}).set_requires_grad(part.trainable)});
      units.push_back(make_flat_parameter("unit", parameters, rank.communicator()));
    }
    const auto optimizer = make_sharded_optimizer(units, {{"", sgd()}}, rank.communicator());
    std::vector<int64_t> numels;
    for (const auto& parts : units_of_parts)
      for (const Part& part : parts)
        numels.push_back(part.numel);
    reduce_gradients(units, [&](size_t i) { return at::ones({numels[i]}); });
    optimizer->step();
    for (const auto& unit : units) {
      unit->unshard();
      for (const auto& [name, parameter] : unit->parameters())
        rank.observe("elements that changed in " + name, parameter.ne(1).sum().item<int64_t>());
    }
  });
  for (const auto& parts : units_of_parts)
    for (const Part& part : parts)
      expect_on_all_ranks(run, "elements that changed in " + part.name,
                          part.trainable ? part.numel : 0);
}

MULTI_RANK_TEST(T5_1_step_on_shards, the_next_all_gather_delivers_the_updated_values) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, {{"", adamw()}}, rank.communicator());
    reduce_all_gradients(units);
    optimizer->step();
    observe_old_values(rank, units);
  });
  expect_no_old_values(run);
}

MULTI_RANK_TEST(T5_1_step_on_shards, a_step_keeps_the_sharded_gradients_until_zero_grad) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, groups_that_differ(), rank.communicator());
    reduce_gradients(units, 0);
    const int64_t before = live(MemoryClass::sharded_gradients);
    optimizer->step();
    rank.observe("bytes of sharded gradients that step() dropped",
                 before - live(MemoryClass::sharded_gradients));
  });
  expect_on_all_ranks(run, "bytes of sharded gradients that step() dropped", 0);
}

MULTI_RANK_TEST(T5_1_step_on_shards, zero_grad_frees_the_sharded_gradients_of_all_units) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, groups_that_differ(), rank.communicator());
    reduce_gradients(units, 0);
    optimizer->step();
    optimizer->zero_grad();
    rank.observe("bytes of sharded gradients after zero_grad()",
                 live(MemoryClass::sharded_gradients));
  });
  expect_on_all_ranks(run, "bytes of sharded gradients after zero_grad()", 0);
}

// If zero_grad() kept the gradient of a frozen unit, this gradient would count in every later norm.
MULTI_RANK_TEST(T5_1_step_on_shards, zero_grad_drops_the_gradient_of_a_unit_frozen_since_backward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, groups_that_differ(), rank.communicator());
    reduce_all_gradients(units);
    rank.observe("bytes of sharded gradients before", live(MemoryClass::sharded_gradients) > 0);
    for (const auto& [name, parameter] : units[1]->parameters())
      at::Tensor(parameter).set_requires_grad(false);
    optimizer->zero_grad();
    rank.observe("unit b, which was frozen after backward, has a gradient",
                 units[1]->sharded_gradient().defined());
    rank.observe("bytes of sharded gradients after zero_grad()",
                 live(MemoryClass::sharded_gradients));
  });
  expect_on_all_ranks(run, "bytes of sharded gradients before", true);
  expect_on_all_ranks(run, "unit b, which was frozen after backward, has a gradient", false);
  expect_on_all_ranks(run, "bytes of sharded gradients after zero_grad()", 0);
}

MULTI_RANK_TEST(T5_1_step_on_shards, a_frozen_parameter_has_neither_state_nor_decay) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    auto parameters = make_parameters();
    for (size_t i = 0; i < parameters.size(); ++i)
      parameters[i].tensor.set_requires_grad(kParameters[i].name == "a.bias");
    const at::Tensor before = parameters[0].tensor.clone();
    const auto units = make_units(rank, parameters);
    const auto optimizer = make_sharded_optimizer(units, {{"", adamw(0.5)}}, rank.communicator());
    reduce_gradients(units, 0);
    optimizer->step();
    units[0]->unshard();
    rank.observe("the frozen parameter has its values",
                 before.equal(units[0]->parameters()[0].tensor));
    rank.observe("the other one has new ones",
                 !make_parameters()[1].tensor.equal(units[0]->parameters()[1].tensor));
    rank.observe("state", live(MemoryClass::optimizer_state));
  });
  expect_on_all_ranks(run, "the frozen parameter has its values", true);
  expect_on_all_ranks(run, "the other one has new ones", true);
  int64_t state = 0;
  for (int r = 0; r < world_size(); ++r)
    state += run.at(r, "state").get<int64_t>();
  EXPECT_EQ(state, 2 * 4 * 16 + 4)
      << "bytes of state of all ranks together: two moments of the one trainable parameter, "
         "padded, and its step count";
}

MULTI_RANK_TEST(T5_1_step_on_shards, weight_decay_applies_to_a_parameter_without_a_gradient) {
  const RankRun expected = run_oracle([](TestRank& rank) {
    OneProcess model({{"", adamw(0.5)}});
    update(adamw(0.5), model.pieces[0]);
    for (size_t i = 0; i < kParameters.size(); ++i)
      rank.observe(kParameters[i].name, model.values[i]);
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, {{"", adamw(0.5)}}, rank.communicator());
    reduce_gradients(units, [](size_t) { return at::Tensor(); });
    optimizer->step();
    observe_parameters(rank, units, "decayed without a gradient: ");
  });
  for (const Trained& parameter : kParameters)
    expect_on_all_ranks(run, "decayed without a gradient: " + parameter.name,
                        expected.at(0, parameter.name));
}

// In each training, the biases have a parameter group that differs from the other group in only one
// option, so that a failure names this option.
MULTI_RANK_TEST(T5_1_step_on_shards, each_parameter_group_is_updated_with_its_own_options) {
  using Options = OptimizerOptions;
  const std::vector<std::pair<std::string, void (*)(Options&)>> changes{
      {"kind", [](Options& o) { o.kind = Options::Kind::sgd; }},
      {"lr", [](Options& o) { o.lr = 0.3; }},
      {"beta1", [](Options& o) { o.beta1 = 0.5; }},
      {"beta2", [](Options& o) { o.beta2 = 0.9; }},
      {"eps", [](Options& o) { o.eps = 0.1; }},
      {"weight decay", [](Options& o) { o.weight_decay = 0.4; }}};
  std::vector<Training> trainings;
  for (const auto& [option, change] : changes) {
    OptimizerOptions of_biases = adamw();
    change(of_biases);
    trainings.push_back({.groups = {{"bias", of_biases}, {"", adamw()}},
                         .prefix = "where biases have another " + option + ": ",
                         .steps = 3,
                         .compared_from = 2});
  }
  expect_as_one_process(world_size(), trainings);
}

MULTI_RANK_TEST(T5_1_step_on_shards, adamw_equals_one_process_bit_by_bit) {
  expect_as_one_process(world_size(), {{{{"", adamw()}}}});
}

MULTI_RANK_TEST(T5_1_step_on_shards, sgd_equals_one_process_bit_by_bit) {
  expect_as_one_process(world_size(), {{{{"", sgd()}}}});
}

MULTI_RANK_TEST(T5_1_step_on_shards, two_models_with_many_groups_equal_one_process_bit_by_bit) {
  expect_as_one_process(world_size(),
                        {{groups_that_differ(), 0, "first model: "},
                         {{{"weight|gate", sgd(0.3)}, {"", adamw(0.2)}}, 0, "second model: "}});
}

MULTI_RANK_TEST(T5_1_step_on_shards, an_error_names_a_parameter_that_is_in_no_parameter_group) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    rank.observe("what the constructor throws", thrown_by([&] {
                   make_sharded_optimizer(units, {{"weight", adamw()}}, rank.communicator());
                 }));
  });
  expect_error(run, "what the constructor throws", {"std::invalid_argument", "a.bias"});
}

MULTI_RANK_TEST(T5_1_step_on_shards, a_frozen_parameter_needs_no_parameter_group) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const std::string trainable = "weight|bias|scale|gate|none|one";
    const auto optimizer =
        make_sharded_optimizer(units, {{trainable, adamw()}}, rank.communicator());
    reduce_all_gradients(units);
    optimizer->step();
    observe_old_values(rank, units);
  });
  expect_no_old_values(run);
}

MULTI_RANK_TEST(T5_1_step_on_shards, a_step_reshards_units_that_are_unsharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, {{"", sgd()}}, rank.communicator());
    reduce_all_gradients(units);
    for (const auto& unit : units)
      unit->unshard();
    optimizer->step();
    rank.observe("gathered bytes after the step", live(MemoryClass::gathered));
    observe_old_values(rank, units);
  });
  expect_on_all_ranks(run, "gathered bytes after the step", 0);
  expect_no_old_values(run);
}

// No rank has waited for its all-gather when the step begins. step() must end its own all-gather
// first: if every rank first waited until the others have read its shard, all ranks would wait for
// ever.
MULTI_RANK_TEST(T5_1_step_on_shards, a_step_first_completes_pending_all_gathers) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, {{"", sgd()}}, rank.communicator());
    reduce_all_gradients(units);
    for (const auto& unit : units)
      unit->unshard_async();
    optimizer->step();
    rank.observe("gathered bytes after the step", live(MemoryClass::gathered));
    observe_old_values(rank, units);
  });
  expect_on_all_ranks(run, "gathered bytes after the step", 0);
  expect_no_old_values(run);
}

// Rank 0 calls step() as soon as it has resharded the unit. The other ranks read the shard of rank
// 0 late: first they wait, for at most 0.3 s, until step() has returned on rank 0. step() must not
// return on rank 0 before the other ranks have read.
MULTI_RANK_TEST(T5_1_step_on_shards, a_step_waits_until_the_other_ranks_have_read_the_shards) {
  const SharedFlag done;
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, {{"", sgd()}}, rank.communicator());
    reduce_all_gradients(units);
    units[0]->unshard_async();
    if (rank.rank() != 0) done.wait();
    units[0]->unshard();
    const bool old = make_parameters()[0].tensor.equal(units[0]->parameters()[0].tensor);
    rank.observe("gathered before the step are the values before it", old);
    units[0]->reshard();
    optimizer->step();
    if (rank.rank() == 0) done.set();
    observe_old_values(rank, units);
  });
  expect_no_old_values(run);
  expect_on_all_ranks(run, "gathered before the step are the values before it", true);
}

MULTI_RANK_TEST(T5_1_step_on_shards, a_step_issues_no_collective) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, {{"", adamw()}}, rank.communicator());
    reduce_all_gradients(units);
    rank.communicator()->take_log();
    optimizer->step();
    rank.observe("calls", take_calls(*rank.communicator()));
    observe_old_values(rank, units);
  });
  expect_no_old_values(run);
  expect_on_all_ranks(run, "calls", "");
}

MULTI_RANK_TEST(T5_1_step_on_shards, all_pieces_of_a_group_are_updated_in_one_kernel_call) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer =
        make_sharded_optimizer(units, {{"bias", adamw()}, {"", adamw(0)}}, rank.communicator());
    reduce_all_gradients(units);
    const int calls = kernel_calls("aten::_fused_adamw_", [&] { optimizer->step(); });
    rank.observe("kernel calls beyond one per group", std::max(0, calls - 2));
    observe_old_values(rank, units);
  });
  expect_no_old_values(run);
  expect_on_all_ranks(run, "kernel calls beyond one per group", 0);
}

MULTI_RANK_TEST(T5_1_step_on_shards, a_step_without_gradients_throws_and_names_the_unit) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto parameters = make_parameters();
    Units units;
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<std::string> names{"embedding", "decoder", "classifier"};
      units.push_back(make_flat_parameter(names[i], std::vector<NamedParameter>{parameters[i]},
                                          rank.communicator()));
    }
    const auto optimizer = make_sharded_optimizer(units, {{"", adamw()}}, rank.communicator());
    units[0]->reduce_gradient();
    units[0]->wait_for_reduction();
    rank.observe("what step() throws", thrown_by([&] { optimizer->step(); }));
  });
  // The error names the first unit that has no gradient.
  expect_error(run, "what step() throws", {"std::logic_error", "decoder"});
}

MULTI_RANK_TEST(T5_1_step_on_shards,
                a_step_that_throws_changes_no_shard_or_state_and_drops_no_gradient) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, {{"", adamw()}}, rank.communicator());
    reduce_gradients(units, 0);
    units[2]->clear_sharded_gradient();
    std::vector<at::Tensor> before;
    for (const auto& unit : units)
      before.push_back(unit->shard().clone());
    units[0]->unshard();
    rank.observe("what step() throws", thrown_by([&] { optimizer->step(); }));
    rank.observe("unit a is still unsharded", units[0]->state() == UnitState::unsharded);
    rank.observe("unit a still has its gradient", units[0]->sharded_gradient().defined());
    rank.observe("state's bytes", live(MemoryClass::optimizer_state));
    bool same = true;
    for (size_t u = 0; u < units.size(); ++u)
      same &= before[u].nan_to_num(0).equal(units[u]->shard().nan_to_num(0));
    rank.observe("the shards are as before", same);
  });
  expect_error(run, "what step() throws", {"std::logic_error"});
  expect_on_all_ranks(run, "unit a is still unsharded", true);
  expect_on_all_ranks(run, "unit a still has its gradient", true);
  expect_on_all_ranks(run, "state's bytes", 0);
  expect_on_all_ranks(run, "the shards are as before", true);
}

}  // namespace
}  // namespace fsdp
