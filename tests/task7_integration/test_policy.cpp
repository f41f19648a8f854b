#include <testing/multi_rank.h>
#include <testing/toy_model.h>

#include "chosen_modules.h"
#include "planned_models.h"

namespace fsdp {
namespace {

TEST(T7_3_policy, wrap_by_type_chooses_the_modules_of_one_type) {
  EXPECT_EQ(plan_text([] {
              Nested model;
              return plan_units(model, wrap_by_type("OuterBlock"));
            }),
            "a: a.scale a.inner.weight a.inner.bias a.inner.spare; "
            "b: b.scale b.inner.weight b.inner.bias b.inner.spare; ");
}

TEST(T7_3_policy, each_policy_chooses_a_module_once_and_never_the_root) {
  EXPECT_EQ(chosen_by([] { return wrap_none(); }), "");
  EXPECT_EQ(chosen_by([] { return wrap_blocks(); }), "HolderBlock; HolderBlock; ToyBlock; ");
  EXPECT_EQ(chosen_by([] { return wrap_by_type("HolderBlock"); }), "HolderBlock; HolderBlock; ");
  EXPECT_EQ(chosen_by([] { return wrap_by_type("ToyBlock"); }), "ToyBlock; ");
}

// Observes the exception that plan_units() throws with the policy wrap_by_type(type).
RankRun refused(const std::string& type) {
  return run_ranks(1, [&](TestRank& rank) {
    Nested model;
    // A torch::nn::Linear cannot have hooks, so it cannot be a unit.
    model.register_module("plain", torch::nn::Linear(2, 2));
    rank.observe("type " + type, thrown_by([&] { plan_units(model, wrap_by_type(type)); }));
  });
}

// The refused names are parts of the type ToyBlock or write it differently, and "Nested": the root
// is a Nested, but no module below the root is one.
TEST(T7_3_policy, wrap_by_type_compares_the_whole_type_name) {
  for (const std::string type : {"Block", "Toy", "ToyBloc", "oyBlock", "toyblock", "Nested"})
    expect_error(refused(type), "type " + type, {"std::invalid_argument"});
}

TEST(T7_3_policy, an_unknown_type_error_lists_the_known_ones) {
  for (const std::string type : {"Blok", "LinearImpl"}) {
    const RankRun run = refused(type);
    expect_error(run, "type " + type, {"std::invalid_argument"});
    const auto said = run.at(0, "type " + type).get<std::string>();
    EXPECT_TRUE(said.ends_with(": wrap policy: no module of type " + type +
                               "; there are OuterBlock, ToyBlock"))
        << said;
  }
}

}  // namespace
}  // namespace fsdp
