#include <testing/multi_rank.h>
#include <wrap_by_size.h>

#include "chosen_modules.h"
#include "planned_models.h"

namespace fsdp {
namespace {

TEST(T7_6_wrap_by_size, wrap_by_size_chooses_inner_modules_before_outer_ones) {
  // An inner block has 16 + 4 + 3 elements of 4 bytes. The outer block has 4 more, its scale.
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

TEST(T7_6_wrap_by_size, wrap_by_size_counts_a_tied_tensor_once) {
  // A pair has 16 elements under two names, and 4 + 3 other elements in each block: 120 bytes.
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

TEST(T7_6_wrap_by_size, wrap_by_size_adds_an_unhookable_module_to_the_module_around_it) {
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

TEST(T7_6_wrap_by_size, wrap_by_size_chooses_a_module_once_and_never_the_root) {
  EXPECT_EQ(chosen_by([] { return wrap_by_size(92); }), "ToyBlock; ");
  EXPECT_EQ(chosen_by([] { return wrap_by_size(8); }),
            "Blocks; HolderBlock; HolderBlock; ToyBlock; ");
}

}  // namespace
}  // namespace fsdp
