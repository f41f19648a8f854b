#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Hidden cases: if FSDP_TEST_SEED is set during grading, the same tests run with other numbers of
// ranks, other sizes and other values. Hidden cases require the same behaviour as the usual ones.
namespace fsdp {

// Returns whether the hidden cases run: FSDP_TEST_SEED is set, or the judge has passed a seed
// (seed.h).
bool hidden_cases();

// Returns a number in [0, 2^53) that depends only on the seed of the hidden cases and `what`.
// Requires hidden_cases().
uint64_t hidden_number(const std::string& what);

// Returns the seed for a generator of random numbers: `usual`, or another number in hidden cases.
inline uint64_t test_seed(uint64_t usual) {
  return hidden_cases() ? hidden_number("seed " + std::to_string(usual)) : usual;
}

// Returns the first of `choices`, or another of them in hidden cases. `what` names what is chosen:
// the same `what` and seed of the hidden cases always give the same choice.
template <typename T>
T test_choice(const std::string& what, const std::vector<T>& choices) {
  return choices.at(hidden_cases() ? 1 + hidden_number(what) % (choices.size() - 1) : 0);
}

// Returns the numbers of ranks with which a test runs: `usual`. In hidden cases, returns one number
// instead, 5, 6 or 7, which few tests usually have.
inline std::vector<int> world_sizes(const std::vector<int>& usual) {
  if (!hidden_cases()) return usual;
  return {5 + static_cast<int>(hidden_number("world size") % 3)};
}

}  // namespace fsdp
