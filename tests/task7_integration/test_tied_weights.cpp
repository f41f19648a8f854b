#include <comm/tree_sum.h>
#include <fully_shard.h>
#include <testing/multi_rank.h>
#include <testing/toy_model.h>

#include "planned_models.h"

namespace fsdp {
namespace {

TEST(T7_2_tied_weights, tied_weights_belong_to_the_unit_around_all_their_uses) {
  EXPECT_EQ(plan_text([] {
              PairBlock model(kTied);
              return plan_units(model, wrap_blocks());
            }),
            "root: one.weight; one: one.bias one.spare; two: two.bias two.spare; ");
}

TEST(T7_2_tied_weights, tied_weights_belong_to_the_nearest_common_unit_even_below_the_root) {
  EXPECT_EQ(plan_text([] {
              const auto pair = std::make_shared<PairBlock>(kTied);
              Row model({pair, std::make_shared<ToyBlock>(4, 3)});
              return plan_units(model, wrap_blocks());
            }),
            "a: a.one.weight; a.one: a.one.bias a.one.spare; a.two: a.two.bias a.two.spare; "
            "b: b.weight b.bias b.spare; ");
  // The unit a and the unit a.inner inside it share one weight, which then belongs to a.
  EXPECT_EQ(plan_text([] {
              const auto outer = std::make_shared<OuterBlock>();
              outer->register_parameter("again", outer->inner->weight);
              Row model({outer});
              return plan_units(model, wrap_blocks());
            }),
            "a: a.scale a.again; a.inner: a.inner.bias a.inner.spare; ");
}

TEST(T7_2_tied_weights, a_weight_tied_three_times_belongs_to_the_unit_around_all_three) {
  EXPECT_EQ(plan_text([] {
              const auto pair = std::make_shared<PairBlock>(kTied);
              const auto third = std::make_shared<ToyBlock>(4, 3);
              third->tie_weight(pair->one->weight);
              Row model({pair, third});
              return plan_units(model, wrap_blocks());
            }),
            "root: a.one.weight; a.one: a.one.bias a.one.spare; a.two: a.two.bias a.two.spare; "
            "b: b.bias b.spare; ");
}

TEST(T7_2_tied_weights, a_shared_module_that_is_no_unit_belongs_to_the_unit_around_both_places) {
  EXPECT_EQ(
      plan_text([] {
        const auto shared = std::make_shared<Scale>();
        Row model({std::make_shared<HolderBlock>(shared), std::make_shared<HolderBlock>(shared)});
        return plan_units(model, wrap_blocks());
      }),
      "root: a.inside.factors; a: a.own; b: b.own; ");
}

// The model has one pair of blocks in two places. The weight is tied between the two blocks of the
// pair, so the pair contains all uses of the weight, and its unit must hold the weight.
TEST(T7_2_tied_weights, a_unit_that_the_model_has_twice_keeps_a_weight_tied_inside_it) {
  EXPECT_EQ(plan_text([] {
              const auto pair = std::make_shared<PairBlock>(kTied);
              Row model({std::make_shared<HolderBlock>(pair), std::make_shared<HolderBlock>(pair)});
              return plan_units(model, wrap_blocks());
            }),
            "a: a.own; a.inside: a.inside.one.weight; "
            "a.inside.one: a.inside.one.bias a.inside.one.spare; "
            "a.inside.two: a.inside.two.bias a.inside.two.spare; b: b.own; ");
}

TEST(T7_2_tied_weights, a_unit_whose_only_parameter_belongs_to_another_unit_is_left_out) {
  EXPECT_EQ(plan_text([] {
              const auto scale = std::make_shared<Scale>();
              Row model({scale});
              model.register_parameter("factors", scale->factors);
              return plan_units(model, wrap_by_hand({scale.get()}));
            }),
            "root: factors; ");
}

MULTI_RANK_SUITE(T7_2_tied_weights_ranks);

// Compares the gradient of a pair whose weights are tied with that of one process. In one run the
// weight is in the root, in the other it is in a unit below the root.
MULTI_RANK_TEST(T7_2_tied_weights_ranks, both_uses_share_one_variable_and_one_gradient) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    PairBlock model(kTied);
    model(at::ones({2, 4})).sum().backward();
    const std::vector<at::Tensor> of_ranks(world_size(), model.one->weight.grad());
    rank.observe("gradient", sum_as_tree(of_ranks) / world_size());
  });
  for (const bool deep : {false, true}) {
    SCOPED_TRACE(deep ? "the pair is a unit" : "the pair is the root");
    const RankRun run = run_ranks(world_size(), [deep](TestRank& rank) {
      const auto pair = std::make_shared<PairBlock>(kTied);
      const std::shared_ptr<Module> model =
          deep ? std::make_shared<Row>(std::vector<std::shared_ptr<Module>>{pair})
               : std::shared_ptr<Module>(pair);
      const auto sharded = fully_shard(*model, rank.communicator());
      (*model)(at::ones({2, 4})).sum().backward();
      rank.observe("one variable", pair->one->weight.is_same(pair->two->weight));
      const FlatParameter& unit = *sharded->units()[0];
      rank.observe("unit of the weight", unit.unit());
      at::Tensor full = at::empty({unit.layout().padded_numel});
      rank.communicator()->all_gather_into(full, unit.sharded_gradient(), "test").wait();
      rank.observe("gradient", full.slice(0, 0, 16).view({4, 4}));
    });
    expect_on_all_ranks(run, "one variable", true);
    expect_on_all_ranks(run, "unit of the weight", deep ? "a" : "root");
    expect_on_all_ranks(run, "gradient", oracle.at(0, "gradient"));
  }
}

}  // namespace
}  // namespace fsdp
