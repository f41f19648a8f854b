#pragma once

#include <check/score.h>

#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// What became of one task.
struct TaskResult {
  const Task* task{};
  bool compiles{true};
  bool held{};                                             // the sentinel fails, so no point counts
  std::vector<std::pair<const Problem*, Tally>> problems;  // those that are wanted
  Tally sum;
  std::vector<TestResult> tests;  // sorted by problem

  bool not_started() const { return compiles && sum.not_started == sum.tests(); }
};

// The results as JSON: points; for each problem its counts, its share of passed tests and the text
// that explains it; every test. The grader reads this.
std::string to_json(const std::vector<TaskResult>& tasks, const Tally& total);

}  // namespace fsdp
