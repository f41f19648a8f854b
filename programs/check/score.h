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

// "#####...........": how much of 16 has passed.
std::string bar(const Tally& tally);

}  // namespace fsdp
