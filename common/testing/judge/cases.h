#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Hidden cases: graded with FSDP_TEST_SEED set, the same tests run with other numbers of ranks,
// sizes and values. What they ask stays the same.
namespace fsdp {

// [0, 2^53) from FSDP_TEST_SEED and `what`; nothing if the seed isn't set.
bool hidden_cases();
uint64_t hidden_number(const std::string& what);

// The seed of a generator: `usual`, or another.
inline uint64_t test_seed(uint64_t usual) {
  return hidden_cases() ? hidden_number("seed " + std::to_string(usual)) : usual;
}

// The first of the choices, or another one, the same wherever `what` is asked for.
template <typename T>
T test_choice(const std::string& what, const std::vector<T>& choices) {
  return choices.at(hidden_cases() ? 1 + hidden_number(what) % (choices.size() - 1) : 0);
}

// `usual`, or a number of ranks that no test usually has: 5, 6 or 7.
inline std::vector<int> world_sizes(const std::vector<int>& usual) {
  if (!hidden_cases()) return usual;
  return {5 + static_cast<int>(hidden_number("world size") % 3)};
}

}  // namespace fsdp
