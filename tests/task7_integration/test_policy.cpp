#include <testing/multi_rank.h>
#include <testing/toy_model.h>

#include "chosen_modules.h"
#include "planned_models.h"

namespace fsdp {
namespace {

TEST(T7_3_policy, wraps_modules_by_type) {
  EXPECT_EQ(plan_text([] {
              Nested model;
              return plan_units(model, wrap_by_type("OuterBlock"));
            }),
            "a: a.scale a.inner.weight a.inner.bias a.inner.spare; "
            "b: b.scale b.inner.weight b.inner.bias b.inner.spare; ");
}

TEST(T7_3_policy, each_chooses_a_module_once_and_never_the_root) {
  EXPECT_EQ(chosen_by([] { return wrap_none(); }), "");
  EXPECT_EQ(chosen_by([] { return wrap_blocks(); }), "HolderBlock; HolderBlock; ToyBlock; ");
  EXPECT_EQ(chosen_by([] { return wrap_by_type("HolderBlock"); }), "HolderBlock; HolderBlock; ");
  EXPECT_EQ(chosen_by([] { return wrap_by_type("ToyBlock"); }), "ToyBlock; ");
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
