#pragma once

#include <check/course.h>
#include <check/test_run.h>

#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// The functions of this header turn results into points. check_course() withholds the points of a
// task whose sentinel fails. The grader reads to_json(), and computes grades with a program of its
// own.

// The results of one problem, or the sum over several problems.
struct Tally {
  int passed{}, failed{}, not_started{};  // numbers of tests
  bool untested{};                        // the tests of a problem could not run
  double points{};
  double possible{};

  int tests() const { return passed + failed + not_started; }
  double share() const;  // points / possible, 0 to 1
  bool begun() const { return passed + failed > 0; }
  bool complete() const { return tests() > 0 && passed == tests() && !untested; }
  Tally& operator+=(const Tally& other);
};

// A skipped test counts as failed, because it is unknown whether it would pass.
bool has_failed(const TestResult& result);

// Each test of a problem has an equal part of the problem's points. A problem that is not complete
// loses at least half a point.
Tally tally(const Problem& problem, const std::vector<TestResult>& results);

// Returns whether the task's sentinel ran and did not pass; a sentinel that runs on several numbers
// of ranks must pass on at least one above 1. If it fails, nothing shows that a rank holds less
// memory than the whole model, and no point of the task counts. (Code that shards in a wrong way
// passes the sentinel; code that ends before the measurement does not.)
bool sentinel_fails(const Task& task, const std::vector<TestResult>& results);

// Returns the problem that a result belongs to. Throws std::logic_error if there is none.
const Problem& problem_of(const TestResult& result);

// Sorts results by suite, in the order of course.toml, and keeps the order within a suite. Before
// this, results are in the order in which the test program's files were linked.
void sort_by_suite(std::vector<TestResult>& results);

// Returns the failure to show: of the first test that failed, the run on the fewest ranks. The run
// on one rank is shown only if it is the only one that failed, because on one rank no collective
// moves data. A test that was not run is shown only if no other test failed. Null if none failed.
const TestResult* telling_failure(const std::vector<TestResult>& results);

// The results of one task.
struct TaskResult {
  const Task* task{};
  std::string unusable;                                    // why its tests cannot run; else empty
  bool points_withheld{};                                  // the sentinel fails, so no point counts
  std::vector<std::pair<const Problem*, Tally>> problems;  // selected by the command line
  Tally sum;                                               // of `problems` without extensions
  Tally extensions;
  const Tally& tally() const { return task->is_optional() ? extensions : sum; }
  std::vector<TestResult> tests;  // sorted by problem

  void add(const Problem& problem, const Tally& tally);
  bool not_started() const {  // no problem and no extension is started
    return unusable.empty() &&
           sum.not_started + extensions.not_started == sum.tests() + extensions.tests();
  }
};

// The results of all tasks. `sum` never contains an extension.
struct CourseResult {
  std::vector<TaskResult> tasks;
  Tally sum, extensions;

  // Returns whether all selected problems are complete. Extensions decide this only if the command
  // line selected nothing else.
  bool complete() const { return (sum.possible > 0 ? sum : extensions).complete(); }
};

// Returns the results as JSON, which the grader reads: the points; for each problem its counts, its
// share of the points and a text that explains its first failure; and every test.
std::string to_json(const CourseResult& course);

}  // namespace fsdp
