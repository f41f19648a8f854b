#include <gtest/gtest.h>
#include <optim/update_rule.h>

#include <stdexcept>
#include <vector>

#include "expect_text.h"

namespace fsdp {
namespace {

TEST(ParameterGroups, a_parameter_belongs_to_the_first_group_whose_pattern_matches) {
  const std::vector<ParameterGroup> groups{{"ln|bias$", {}}, {"^h\\.0\\.", {}}, {"", {}}};
  EXPECT_EQ(group_of("h.0.ln_1.weight", groups), 0u);
  EXPECT_EQ(group_of("h.3.attn.c_attn.bias", groups), 0u);
  EXPECT_EQ(group_of("h.0.attn.c_attn.weight", groups), 1u);
  EXPECT_EQ(group_of("wte.weight", groups), 2u);
}

TEST(ParameterGroups, group_of_throws_and_names_a_parameter_without_a_group_or_an_invalid_pattern) {
  const auto refusal = [](const std::string& pattern) {
    return error_of<std::invalid_argument>([&] { group_of("wte.weight", {{pattern, {}}}); });
  };
  EXPECT_CONTAINS(refusal("ln"), "wte.weight");
  EXPECT_CONTAINS(refusal("("), "'('");
}

}  // namespace
}  // namespace fsdp
