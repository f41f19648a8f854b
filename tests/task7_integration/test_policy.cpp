#include <testing/multi_rank.h>
#include <testing/toy_model.h>

#include <functional>
#include <set>

#include "planned_models.h"

namespace fsdp {
namespace {

// Its name contains "Block", but does not end in it.
class Blocks : public HolderBlock {
  using HolderBlock::HolderBlock;
};

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
            "b.inner: b.inner.weight b.inner.bias b.inner.spare; ")
      << "an inner block has 23 elements, which are 92 bytes";
  EXPECT_EQ(plan_text([] {
              Nested model;
              return plan_units(model, wrap_by_size(93));
            }),
            "a: a.scale a.inner.weight a.inner.bias a.inner.spare; "
            "b: b.scale b.inner.weight b.inner.bias b.inner.spare; ")
      << "an outer block has 24 elements, which are 96 bytes; 92 of them are of the inner one";
}

TEST(T7_3_policy, a_size_counts_a_tied_tensor_once) {
  // One pair has 16 elements under two names, and in each block 4 + 3 others: 120 bytes.
  const auto plan_of = [](int64_t bytes) {
    return plan_text([bytes] {
      Row model({std::make_shared<PairBlock>(kTied)});
      return plan_units(model, wrap_by_size(bytes));
    });
  };
  const std::string parameters = " a.one.weight a.one.bias a.one.spare a.two.bias a.two.spare; ";
  EXPECT_EQ(plan_of(120), "a:" + parameters);
  EXPECT_EQ(plan_of(121), "root:" + parameters);
}

TEST(T7_3_policy, what_lies_in_a_module_that_cannot_be_hooked_counts_for_the_one_around_it) {
  const auto plan_of = [](int64_t bytes) {
    return plan_text([bytes] {
      Row model({std::make_shared<Projection>(), std::make_shared<Scale>()});
      return plan_units(model, wrap_by_size(bytes));
    });
  };
  EXPECT_EQ(plan_of(12), "a: a.linear.weight a.linear.bias; b: b.factors; ");
  EXPECT_EQ(plan_of(80), "root: b.factors; a: a.linear.weight a.linear.bias; ");
  EXPECT_EQ(plan_of(81), "root: a.linear.weight a.linear.bias b.factors; ");
}

// The classes of the modules that the policy chooses, sorted. The root is a block, too, and one of
// the blocks inside has two names.
std::string chosen_by(const std::function<WrapPolicy()>& make_policy) {
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const auto shared = std::make_shared<ToyBlock>(4, 1);
    const auto blocks = std::make_shared<Blocks>(std::make_shared<HolderBlock>(shared));
    const auto root = std::make_shared<HolderBlock>(std::make_shared<HolderBlock>(
        std::make_shared<Row>(std::vector<std::shared_ptr<Module>>{blocks, shared})));
    std::multiset<std::string> names;
    for (const Module* module : make_policy()(*root))
      names.insert(module == root.get() ? "the root" : module->name());
    std::string text;
    for (const std::string& name : names)
      text += name.substr(name.rfind(':') + 1) + "; ";
    rank.observe("chosen", text);
  });
  return run.at(0, "chosen").get<std::string>();
}

TEST(T7_3_policy, each_chooses_a_module_once_and_never_the_root) {
  EXPECT_EQ(chosen_by([] { return wrap_none(); }), "");
  EXPECT_EQ(chosen_by([] { return wrap_blocks(); }), "HolderBlock; HolderBlock; ToyBlock; ");
  EXPECT_EQ(chosen_by([] { return wrap_by_type("HolderBlock"); }), "HolderBlock; HolderBlock; ");
  EXPECT_EQ(chosen_by([] { return wrap_by_type("ToyBlock"); }), "ToyBlock; ");
  EXPECT_EQ(chosen_by([] { return wrap_by_size(92); }), "ToyBlock; ");
  EXPECT_EQ(chosen_by([] { return wrap_by_size(8); }),
            "Blocks; HolderBlock; HolderBlock; ToyBlock; ");
}

TEST(T7_3_policy, a_type_is_compared_as_a_whole) {
  run_ranks(1, [](TestRank&) {
    Nested model;
    for (const char* part : {"Block", "Toy", "ToyBloc", "oyBlock", "toyblock"})
      EXPECT_THROW(plan_units(model, wrap_by_type(part)), std::invalid_argument) << part;
    EXPECT_THROW(plan_units(model, wrap_by_type("Nested")), std::invalid_argument)
        << "Nested: only the root is of this type, and no module below it";
  });
}

TEST(T7_3_policy, an_unknown_type_error_lists_the_known_ones) {
  run_ranks(1, [](TestRank&) {
    Nested model;
    model.register_module("plain", torch::nn::Linear(2, 2));  // cannot be hooked
    for (const std::string type : {"Blok", "LinearImpl"}) {
      try {
        plan_units(model, wrap_by_type(type));
        FAIL() << "nothing was thrown";
      } catch (const std::invalid_argument& error) {
        EXPECT_EQ(error.what(),
                  "wrap policy: no module of type " + type + "; there are OuterBlock, ToyBlock");
      }
    }
  });
}

}  // namespace
}  // namespace fsdp
