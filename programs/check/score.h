#pragma once

#include <check/course.h>
#include <check/test_run.h>

#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// The functions of this header turn results of tests into points. check_course() sets the points of
// a task whose sentinel (its test of memory) fails to 0. The grader reads the JSON of to_json(),
// and computes grades with a program of its own.

// The results of one problem, or the sum over several problems.
struct Tally {
  // How many tests passed, how many failed, and how many are not started.
  int passed{}, failed{}, not_started{};
  // true: the tests of the problem were not run; in a sum: those of at least one problem.
  bool untested{};
  double points{};
  double possible{};

  int tests() const { return passed + failed + not_started; }
  // Returns points / possible, a number from 0 to 1; 0 if `possible` is 0.
  double share() const;
  bool begun() const { return passed + failed > 0; }
  bool complete() const { return tests() > 0 && passed == tests() && !untested; }
  Tally& operator+=(const Tally& other);
};

// Returns whether the test failed or was skipped. A skipped test counts as failed, because it is
// unknown whether it would pass.
bool has_failed(const TestResult& result);

// Returns the counts and the points of the problem. Each of its tests is worth an equal part of the
// problem's points. A problem that is not complete loses at least half a point.
Tally tally(const Problem& problem, const std::vector<TestResult>& results);

// A task's sentinel is its test that a rank holds less memory than the whole model. Returns true if
// the sentinel ran on two or more ranks, but passed on no such number of ranks. Then nothing shows
// that memory is saved, and the caller sets the points of the task to 0. (Code that shards in a
// wrong way passes the sentinel; code that ends before the measurement does not.)
bool sentinel_fails(const Task& task, const std::vector<TestResult>& results);

// Returns the problem that the suite of `result` belongs to. Throws std::logic_error if there is
// none.
const Problem& problem_of(const TestResult& result);

// Sorts results by suite, in the order of course.toml, and keeps the order within a suite. A test
// program runs its suites in another order, that in which its files were linked.
void sort_by_suite(std::vector<TestResult>& results);

// Returns the failure that check shows in full, or null if no test failed:
// - of the first test that failed, the run on the fewest ranks. The run on one rank is used only if
//   the test failed on no other number of ranks, because on one rank no collective moves data;
// - a test that was not run (TestResult::not_run) only if all failures are of this kind.
const TestResult* telling_failure(const std::vector<TestResult>& results);

// The results of one task.
struct TaskResult {
  const Task* task{};
  std::string unusable;  // why the task's tests cannot run; "": they can
  // true: the task gets 0 points, because its test of memory (sentinel) fails.
  bool points_withheld{};
  // The results of those problems of the task that the command line of check selects.
  std::vector<std::pair<const Problem*, Tally>> problems;
  Tally sum;  // sum of the results in `problems`, without extensions
  Tally extensions;
  const Tally& tally() const { return task->is_optional() ? extensions : sum; }
  std::vector<TestResult> tests;  // results of the task's tests, sorted by problem

  void add(const Problem& problem, const Tally& tally);
  // Returns whether the student has started no problem and no extension of the task.
  bool not_started() const {
    return unusable.empty() &&
           sum.not_started + extensions.not_started == sum.tests() + extensions.tests();
  }
};

// The results of all tasks. `sum` adds up the problems without extensions, and `extensions` adds up
// the extensions.
struct CourseResult {
  std::vector<TaskResult> tasks;
  Tally sum, extensions;

  // Returns whether all selected problems are complete. Extensions count only if the command line
  // selected nothing but extensions.
  bool complete() const { return (sum.possible > 0 ? sum : extensions).complete(); }
};

// Returns the results as JSON, which the grader reads: the points; for each problem its counts, its
// share of the points and a text that explains its first failure; and every test.
std::string to_json(const CourseResult& course);

}  // namespace fsdp
