#include <fully_shard.h>
#include <memory/live_bytes.h>
#include <testing/multi_rank.h>
#include <testing/toy_model.h>

namespace fsdp {
namespace {

// "root: embedding head; blocks0: weight bias spare; "
std::string text(const std::vector<UnitPlan>& plan) {
  std::string result;
  for (const UnitPlan& unit : plan) {
    result += unit.name + ":";
    for (const auto& parameter : unit.parameters)
      result += " " + parameter.name;
    result += "; ";
  }
  return result;
}

std::string plan_text(const std::function<std::vector<UnitPlan>()>& plan) {
  return run_ranks(1, [&](TestRank& rank) { rank.observe("plan", text(plan())); })
      .at(0, "plan")
      .get<std::string>();
}

// A block around a block, with a parameter of its own.
class OuterBlock : public Module {
 public:
  OuterBlock() {
    inner = register_module("inner", std::make_shared<ToyBlock>(4, 1));
    scale = register_parameter("scale", at::ones({1}));
  }
  torch::Tensor forward(torch::Tensor x) override { return (*inner)(x)*scale; }
  std::shared_ptr<ToyBlock> inner;
  at::Tensor scale;
};

// Two outer blocks; `share` makes them hold one inner block.
class Nested : public Module {
 public:
  explicit Nested(bool share = false) {
    a = register_module("a", std::make_shared<OuterBlock>());
    b = register_module("b", std::make_shared<OuterBlock>());
    if (share) b->inner = b->replace_module("inner", a->inner);
  }
  torch::Tensor forward(torch::Tensor x) override { return (*b)((*a)(x)); }
  std::shared_ptr<OuterBlock> a, b;
};

TEST(T7_1_fully_shard, a_parameter_belongs_to_its_nearest_unit_only) {
  EXPECT_EQ(plan_text([] {
              Nested model;
              return plan_units(model, wrap_blocks());
            }),
            "a: a.scale; a.inner: a.inner.weight a.inner.bias a.inner.spare; "
            "b: b.scale; b.inner: b.inner.weight b.inner.bias b.inner.spare; ");
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
              Nested model(/*share=*/true);
              return plan_units(model, wrap_blocks());
            }),
            "a: a.scale; a.inner: a.inner.weight a.inner.bias a.inner.spare; b: b.scale; ");
}

TEST(T7_1_fully_shard, the_units_hold_every_element_once) {
  run_ranks(1, [](TestRank&) {
    Nested model(/*share=*/true);
    const auto plan = plan_units(model, wrap_blocks());
    for (int world_size : {1, 2, 3, 8}) {
      const ShardLayout layout = plan_layout(model, plan, world_size);
      EXPECT_NO_THROW(layout.check(distinct_parameters(model)));
    }
  });
}

TEST(T7_1_fully_shard, a_module_outside_the_model_is_refused) {
  run_ranks(1, [](TestRank&) {
    ToyModel model(1);
    ToyBlock stranger(3, 1);
    EXPECT_THROW(plan_units(model, wrap_by_hand({&stranger})), std::invalid_argument);
  });
}

// Both blocks hold the same weight.
class Tied : public Module {
 public:
  Tied() {
    a = register_module("a", std::make_shared<ToyBlock>(4, 1));
    b = register_module("b", std::make_shared<ToyBlock>(4, 2));
    b->tie_weight(a->weight);
  }
  torch::Tensor forward(torch::Tensor x) override { return (*b)((*a)(x)); }
  std::shared_ptr<ToyBlock> a, b;
};

TEST(T7_2_tied_weights, tied_weights_belong_to_the_unit_around_all_their_uses) {
  EXPECT_EQ(plan_text([] {
              Tied model;
              return plan_units(model, wrap_blocks());
            }),
            "root: a.weight; a: a.bias a.spare; b: b.bias b.spare; ");
}

MULTI_RANK_SUITE(T7_2_tied_weights_ranks);

TEST_P(T7_2_tied_weights_ranks, both_uses_share_one_variable_and_one_gradient) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    Tied model;
    model(at::ones({2, 4})).sum().backward();
    at::Tensor sum = model.a->weight.grad().clone();
    for (int r = 1; r < world_size(); ++r)
      sum += model.a->weight.grad();
    rank.observe("gradient", sum / world_size());
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Tied model;
    const auto sharded = fully_shard(model, rank.communicator());
    model(at::ones({2, 4})).sum().backward();
    rank.observe("one variable", model.a->weight.is_same(model.b->weight));
    const FlatParameter& root = *sharded->units()[0];
    at::Tensor full = at::empty({root.layout().padded_numel});
    rank.communicator()->all_gather_into(full, root.sharded_gradient(), "test").wait();
    rank.observe("gradient", full.slice(0, 0, 16).view({4, 4}));
  });
  expect_on_all_ranks(run, "one variable", true);
  expect_on_all_ranks(run, "gradient", oracle.at(0, "gradient"));
}

TEST(T7_3_policy, wraps_modules_by_type) {
  EXPECT_EQ(plan_text([] {
              Nested model;
              return plan_units(model, wrap_by_type("OuterBlock"));
            }),
            "a: a.scale a.inner.weight a.inner.bias a.inner.spare; "
            "b: b.scale b.inner.weight b.inner.bias b.inner.spare; ");
}

TEST(T7_3_policy, wraps_modules_by_size_from_the_leaves_up) {
  // An inner block has 16 + 4 + 3 elements of 4 bytes; with the scale the outer one has 4 more.
  EXPECT_EQ(plan_text([] {
              Nested model;
              return plan_units(model, wrap_by_size(92));
            }),
            "root: a.scale b.scale; a.inner: a.inner.weight a.inner.bias a.inner.spare; "
            "b.inner: b.inner.weight b.inner.bias b.inner.spare; ");
  EXPECT_EQ(plan_text([] {
              Nested model;
              return plan_units(model, wrap_by_size(93));
            }),
            "a: a.scale a.inner.weight a.inner.bias a.inner.spare; "
            "b: b.scale b.inner.weight b.inner.bias b.inner.spare; ");
}

TEST(T7_3_policy, an_unknown_type_error_lists_the_known_ones) {
  run_ranks(1, [](TestRank&) {
    Nested model;
    try {
      plan_units(model, wrap_by_type("Blok"));
      FAIL() << "nothing was thrown";
    } catch (const std::invalid_argument& error) {
      EXPECT_STREQ(error.what(),
                   "wrap policy: no module of type Blok; there are OuterBlock, ToyBlock");
    }
  });
}

TEST(T7_3_policy, is_parsed_from_text_and_bad_text_is_refused) {
  run_ranks(1, [](TestRank&) {
    for (const char* good : {"block", "none", "type:ToyBlock", "size:1000"}) {
      EXPECT_NO_THROW(parse_wrap_policy(good)) << good;
    }
    for (const char* bad : {"", "blocks", "type:", "size:", "size:0", "size:1k", "size:-5"}) {
      EXPECT_THROW(parse_wrap_policy(bad), std::invalid_argument) << bad;
    }
  });
}

}  // namespace
}  // namespace fsdp
