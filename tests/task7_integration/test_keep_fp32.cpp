#include <fully_shard.h>
#include <sharded_optimizer.h>
#include <testing/call_text.h>
#include <testing/multi_rank.h>
#include <testing/toy_model.h>

#include "planned_models.h"

namespace fsdp {
namespace {

ParameterFilter ends_with(const std::string& end) {
  return [end](const std::string& parameter) { return parameter.ends_with(end); };
}

// Returns the plan of a model with blocks as units, if parameters whose names end in `end` stay
// fp32.
template <typename Model>
std::string plan_that_keeps(const std::string& end, const std::function<Model()>& build) {
  return plan_text([&] {
    Model model = build();
    auto plan = plan_units(model, wrap_blocks());
    keep_in_fp32(plan, model, ends_with(end));
    return plan;
  });
}

std::string plan_of_toy(const std::string& end) {
  return plan_that_keeps<ToyModel>(end, [] { return ToyModel(2); });
}

TEST(T7_9_keep_fp32, parameters_kept_in_fp32_move_to_a_unit_after_that_of_the_root) {
  EXPECT_EQ(plan_of_toy("bias"),
            "root: embedding head; root.fp32: blocks0.bias blocks1.bias; "
            "blocks0: blocks0.weight blocks0.spare; blocks1: blocks1.weight blocks1.spare; ");
}

TEST(T7_9_keep_fp32, a_parameter_of_the_root_can_move_to_the_fp32_unit_too) {
  EXPECT_EQ(plan_of_toy("head"),
            "root: embedding; root.fp32: head; blocks0: blocks0.weight blocks0.bias blocks0.spare; "
            "blocks1: blocks1.weight blocks1.bias blocks1.spare; ");
}

TEST(T7_9_keep_fp32, the_fp32_unit_is_the_first_unit_if_the_plan_has_no_root_unit) {
  EXPECT_EQ(plan_that_keeps<PairBlock>("spare", [] { return PairBlock(); }),
            "root.fp32: one.spare two.spare; one: one.weight one.bias; two: two.weight two.bias; ");
}

TEST(T7_9_keep_fp32, the_plan_leaves_out_a_unit_whose_parameters_all_moved_to_the_fp32_unit) {
  EXPECT_EQ(plan_that_keeps<Nested>("scale", [] { return Nested(); }),
            "root.fp32: a.scale b.scale; "
            "a.inner: a.inner.weight a.inner.bias a.inner.spare; "
            "b.inner: b.inner.weight b.inner.bias b.inner.spare; ");
  EXPECT_EQ(plan_of_toy(""),
            "root.fp32: embedding head blocks0.weight blocks0.bias blocks0.spare "
            "blocks1.weight blocks1.bias blocks1.spare; ");
}

TEST(T7_9_keep_fp32, the_plan_stays_as_it_is_if_no_parameter_is_kept_in_fp32) {
  EXPECT_EQ(plan_of_toy("gain"), plan_text([] {
              ToyModel model(2);
              return plan_units(model, wrap_blocks());
            }));
  EXPECT_NE(plan_of_toy("gain"), plan_of_toy("head"));
}

TEST(T7_9_keep_fp32, the_first_name_of_a_tied_parameter_decides_if_it_stays_fp32) {
  EXPECT_EQ(plan_that_keeps<PairBlock>("one.weight", [] { return PairBlock(kTied); }),
            "root.fp32: one.weight; one: one.bias one.spare; two: two.bias two.spare; ");
  EXPECT_EQ(plan_that_keeps<PairBlock>("two.weight", [] { return PairBlock(kTied); }),
            "root: one.weight; one: one.bias one.spare; two: two.bias two.spare; ");
}

TEST(T7_9_keep_fp32, the_layout_marks_the_roots_unit_and_its_fp32_unit_as_root) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    ToyModel model(2);
    auto plan = plan_units(model, wrap_blocks());
    keep_in_fp32(plan, model, ends_with("bias"));
    std::string roots;
    for (const auto& unit : plan_layout(model, plan, 2).units)
      if (unit.root) roots += unit.name + " ";
    rank.observe("units of the root", roots);
  });
  expect_on_rank(run, 0, "units of the root", "root root.fp32 ");
}

MULTI_RANK_SUITE(T7_9_keep_fp32_ranks);

// The collectives of a step include one all-gather and one reduce-scatter of the fp32 unit.
MULTI_RANK_TEST(T7_9_keep_fp32_ranks,
                the_fp32_unit_is_unsharded_from_forward_to_the_end_of_backward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ToyModel model(2);
    FullyShardOptions options;
    options.keep_fp32 = ends_with("bias");
    const auto sharded = fully_shard(model, rank.communicator(), options);
    const auto loss = model(toy_tokens(rank.rank())).square().sum();
    rank.observe("calls of forward", take_calls(*rank.communicator()));
    std::string unsharded;
    for (const auto& unit : sharded->units())
      if (unit->state() == UnitState::unsharded) unsharded += unit->unit() + " ";
    rank.observe("unsharded after forward", unsharded);
    loss.backward();
    rank.observe("calls of backward", take_calls(*rank.communicator()));
    ToyModel other(2);
    const auto narrow = fully_shard(other, rank.communicator(), options);
    for (const auto& unit : narrow->units())
      if (unit->unit() != "root.fp32") unit->set_mixed_precision({at::kBFloat16, at::kFloat});
    std::string wide;
    narrow->full_parameters([&](const std::string& name, const at::Tensor& parameter) {
      if (parameter.scalar_type() == at::kFloat) wide += name + " ";
    });
    if (rank.rank() == 0) rank.observe("exported in fp32, the rest in bf16", wide);
  });
  expect_on_rank(run, 0, "exported in fp32, the rest in bf16", "blocks0.bias blocks1.bias ");
  expect_on_all_ranks(run, "calls of forward",
                      "all_gather root; all_gather root.fp32; all_gather blocks0; "
                      "all_gather blocks1; ");
  expect_on_all_ranks(run, "unsharded after forward", "root root.fp32 ");
  expect_on_all_ranks(run, "calls of backward",
                      "all_gather blocks1; all_gather blocks0; reduce_scatter blocks1; "
                      "reduce_scatter blocks0; reduce_scatter root.fp32; reduce_scatter root; ");
}

// Trains three steps with SGD. Returns the trained parameters on rank 0, and no parameters on the
// other ranks.
std::vector<at::Tensor> trained(TestRank& rank, const ParameterFilter& keep) {
  ToyModel model(2);
  FullyShardOptions options;
  options.keep_fp32 = keep;
  const auto sharded = fully_shard(model, rank.communicator(), options);
  const OptimizerOptions sgd{.kind = OptimizerOptions::Kind::sgd, .lr = 0.1};
  const auto optimizer = make_sharded_optimizer(sharded->units(), {{"", sgd}}, rank.communicator());
  for (int step = 0; step < 3; ++step) {
    model(toy_tokens(rank.rank() + step)).square().sum().backward();
    optimizer->step();
    optimizer->zero_grad();
  }
  std::vector<at::Tensor> parameters;
  sharded->full_parameters([&](const std::string&, const at::Tensor& parameter) {
    parameters.push_back(parameter.clone());
  });
  return parameters;
}

MULTI_RANK_TEST(T7_9_keep_fp32_ranks, an_fp32_unit_does_not_change_the_trained_parameters) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto expected = trained(rank, {});
    const auto parameters = trained(rank, ends_with("bias"));
    bool equal = parameters.size() == expected.size();
    for (size_t i = 0; equal && i < expected.size(); ++i)
      equal = parameters[i].equal(expected[i]);
    rank.observe("parameters are as without", equal);
  });
  expect_on_all_ranks(run, "parameters are as without", true);
}

}  // namespace
}  // namespace fsdp
