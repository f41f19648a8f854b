#include <memory/live_bytes.h>
#include <testing/multi_rank.h>
#include <testing/toy_model.h>

#include "planned_models.h"

namespace fsdp {
namespace {

TEST(T7_1_fully_shard, a_parameter_belongs_to_its_nearest_unit_only) {
  EXPECT_EQ(plan_text([] {
              Nested model;
              return sorted(plan_units(model, wrap_blocks()));
            }),
            "a: a.scale; a.inner: a.inner.bias a.inner.spare a.inner.weight; "
            "b: b.scale; b.inner: b.inner.bias b.inner.spare b.inner.weight; ");
}

TEST(T7_1_fully_shard, plan_units_lists_a_parent_module_before_its_children) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    Nested model;
    std::string names;
    for (const UnitPlan& unit : plan_units(model, wrap_blocks()))
      names += unit.name + " ";
    rank.observe("units", names);
  });
  expect_on_rank(run, 0, "units", "a a.inner b b.inner ");
}

TEST(T7_1_fully_shard, the_parameters_of_a_unit_are_in_the_order_of_the_model) {
  EXPECT_EQ(plan_text([] {
              PairBlock model;
              return plan_units(model, wrap_none());
            }),
            "root: one.weight one.bias one.spare two.weight two.bias two.spare; ");
}

TEST(T7_1_fully_shard, parameters_outside_all_other_units_belong_to_the_root) {
  EXPECT_EQ(plan_text([] {
              ToyModel model(2);
              return plan_units(model, wrap_by_hand({model.blocks[1].get()}));
            }),
            "root: embedding head blocks0.weight blocks0.bias blocks0.spare; "
            "blocks1: blocks1.weight blocks1.bias blocks1.spare; ");
}

TEST(T7_1_fully_shard, a_module_with_two_names_is_one_unit) {
  EXPECT_EQ(plan_text([] {
              Nested model(kShared);
              return plan_units(model, wrap_blocks());
            }),
            "a: a.scale; a.inner: a.inner.weight a.inner.bias a.inner.spare; b: b.scale; ");
}

TEST(T7_1_fully_shard, the_units_of_a_plan_hold_every_parameter_element_once) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    Nested model(kShared);
    const auto plan = plan_units(model, wrap_blocks());
    for (int world_size : {1, 2, 3, 8}) {
      const ShardLayout layout = plan_layout(model, plan, world_size);
      rank.observe("what check() of the layout throws on " + std::to_string(world_size),
                   thrown_by([&] { layout.check(distinct_parameters(model)); }));
    }
  });
  for (const char* world_size : {"1", "2", "3", "8"})
    expect_on_all_ranks(run, std::string("what check() of the layout throws on ") + world_size,
                        kNothingThrown);
}

TEST(T7_1_fully_shard, the_layout_says_where_each_parameter_is_and_what_is_trainable) {
  const std::string trainable_units =
      "trainable units; of blocks0 only the weight is, of blocks1 nothing, of blocks2 all but the "
      "weight";
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    ToyModel model(3);
    model.blocks[0]->bias.set_requires_grad(false);
    model.blocks[0]->spare.set_requires_grad(false);  // the last parameter of unit blocks0
    for (const at::Tensor& p : model.blocks[1]->parameters())
      p.set_requires_grad(false);
    model.blocks[2]->weight.set_requires_grad(false);  // the first parameter of unit blocks2
    const ShardLayout layout = plan_layout(model, plan_units(model, wrap_blocks()), 4);
    std::string trainable;
    for (const auto& unit : layout.units)
      trainable += unit.trainable ? unit.name + " " : "";
    rank.observe(trainable_units, trainable);
    rank.observe("layout", lines(layout));
  });
  expect_on_rank(run, 0, trainable_units, "root blocks0 blocks2 ");
  expect_on_rank(run, 0, "layout",
                 nlohmann::json::array({"on 4 ranks", "root, 128 elements, root, trainable",
                                        "blocks0, 128 elements, trainable", "blocks1, 128 elements",
                                        "blocks2, 128 elements, trainable",
                                        "embedding: 77 elements at 0 of root, trainable",
                                        "head: 7 elements at 80 of root, trainable",
                                        "blocks0.weight: 49 elements at 0 of blocks0, trainable",
                                        "blocks0.bias: 7 elements at 64 of blocks0",
                                        "blocks0.spare: 3 elements at 80 of blocks0",
                                        "blocks1.weight: 49 elements at 0 of blocks1",
                                        "blocks1.bias: 7 elements at 64 of blocks1",
                                        "blocks1.spare: 3 elements at 80 of blocks1",
                                        "blocks2.weight: 49 elements at 0 of blocks2",
                                        "blocks2.bias: 7 elements at 64 of blocks2, trainable",
                                        "blocks2.spare: 3 elements at 80 of blocks2, trainable"}));
}

TEST(T7_1_fully_shard, if_the_root_has_no_parameters_no_unit_of_the_plan_is_the_root) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    Row model({std::make_shared<ToyBlock>(4, 1), std::make_shared<Scale>()});
    Module *const block = model.row[0].get(), *const scale = model.row[1].get();
    const auto plan_of = [&](const WrapPolicy& policy) {
      return lines(plan_layout(model, plan_units(model, policy), 3));
    };
    rank.observe("layout of a model whose last parameter belongs to the root",
                 plan_of(wrap_by_hand({block})));
    rank.observe("layout without a root", plan_of(wrap_by_hand({block, scale})));
  });
  std::vector<std::string> expected{"on 3 ranks",
                                    "root, 48 elements, root, trainable",
                                    "a, 48 elements, trainable",
                                    "a.weight: 16 elements at 0 of a, trainable",
                                    "a.bias: 4 elements at 16 of a, trainable",
                                    "a.spare: 3 elements at 32 of a, trainable",
                                    "b.factors: 3 elements at 0 of root, trainable"};
  expect_on_rank(run, 0, "layout of a model whose last parameter belongs to the root", expected);
  expected[1] = "a, 48 elements, trainable";
  expected[2] = "b, 48 elements, trainable";
  expected[6] = "b.factors: 3 elements at 0 of b, trainable";
  expect_on_rank(run, 0, "layout without a root", expected);
}

TEST(T7_1_fully_shard, plan_units_throws_for_a_wrap_policy_that_selects_a_foreign_module) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    ToyModel model(1);
    ToyBlock stranger(3, 1);
    rank.observe("what plan_units() throws",
                 thrown_by([&] { plan_units(model, wrap_by_hand({&stranger})); }));
  });
  expect_error(run, "what plan_units() throws", {"std::invalid_argument"});
}

}  // namespace
}  // namespace fsdp
