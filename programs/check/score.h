#pragma once

#include <check/course.h>
#include <check/test_run.h>

#include <string>
#include <vector>

namespace fsdp {

// What the tests of one problem, or of several, came to.
struct Tally {
  int passed{}, failed{}, not_started{};
  double points{};
  double possible{};

  int tests() const { return passed + failed + not_started; }
  bool complete() const { return tests() > 0 && passed == tests(); }
  Tally& operator+=(const Tally& other);
};

// Each test of a problem brings the same part of its points.
Tally tally(const Problem& problem, const std::vector<TestResult>& results);

// Whether the task's sentinel is among the results and has not passed on every number of ranks.
bool sentinel_fails(const Task& task, const std::vector<TestResult>& results);

// "on 2 ranks: only the root stays gathered for backward", which the name of a test says.
std::string sentence(const TestResult& result);

// "#####...........": how much of 16 has passed.
std::string bar(const Tally& tally);

}  // namespace fsdp
