#pragma once

#include <check/score.h>

#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// What became of one task.
struct TaskResult {
  const Task* task{};
  std::string unusable;                                    // why its tests did not run
  bool held{};                                             // the sentinel fails, so no point counts
  std::vector<std::pair<const Problem*, Tally>> problems;  // those that are wanted
  Tally sum;                                               // of them, without extensions
  Tally extensions;
  std::vector<TestResult> tests;  // sorted by problem

  void add(const Problem& problem, const Tally& tally);
  bool not_started() const {  // neither a problem nor an extension
    return unusable.empty() &&
           sum.not_started + extensions.not_started == sum.tests() + extensions.tests();
  }
};

// Of all tasks. The two sums are apart everywhere: no number of the course contains an extension.
struct CourseResult {
  std::vector<TaskResult> tasks;
  Tally sum, extensions;

  // Whether what was wanted is complete: the extensions decide only where nothing else was wanted.
  bool complete() const { return (sum.possible > 0 ? sum : extensions).complete(); }
};

// The results as JSON: points; for each problem its counts, its share of the points and the text
// that explains it; every test. The grader reads this.
std::string to_json(const CourseResult& course);

}  // namespace fsdp
