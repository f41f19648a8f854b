#pragma once

#include <check/course.h>
#include <check/test_run.h>

#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// The one place where results become points.

// The results of one problem, or of several.
struct Tally {
  int passed{}, failed{}, not_started{};  // how many tests
  bool untested{};                        // the tests of a problem could not run
  double points{};
  double possible{};

  int tests() const { return passed + failed + not_started; }
  double share() const;  // the part of the points, 0 to 1
  bool begun() const { return passed + failed > 0; }
  bool complete() const { return tests() > 0 && passed == tests() && !untested; }
  Tally& operator+=(const Tally& other);
};

// A test that was skipped counts as failed: nobody knows whether it would pass.
bool has_failed(const TestResult& result);

// Each test of a problem brings the same part of its points. A failure costs half a point or more.
Tally tally(const Problem& problem, const std::vector<TestResult>& results);

// Whether the task's sentinel ran and did not pass; a test of several ranks: on none of the numbers
// of ranks above one. Nothing shows then that a rank holds less memory than the whole takes, and no
// point of the task counts. (Code that shards in a wrong way passes it; code that ends before it is
// measured does not.)
bool sentinel_fails(const Task& task, const std::vector<TestResult>& results);

// The problem that a result belongs to. Throws std::logic_error if there is none.
const Problem& problem_of(const TestResult& result);

// Sorts results by suite, in the order of the course; keeps the order within a suite. A program
// runs its files in whatever order they were linked.
void sort_by_suite(std::vector<TestResult>& results);

// The failure to show: of the first test that failed, the run on the fewest ranks, but not on one
// rank if another run failed too, since there no collective has anything to do. A test that was not
// run is shown only if no other one failed. Null if none failed.
const TestResult* telling_failure(const std::vector<TestResult>& results);

// What became of one task.
struct TaskResult {
  const Task* task{};
  std::string unusable;                                    // why its tests did not run
  bool points_withheld{};                                  // the sentinel fails, so no point counts
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
