#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

enum class Outcome { passed, failed, not_started, skipped };
const char* to_string(Outcome outcome);  // for example "not started"

struct TestResult {
  std::string suite;  // GoogleTest's suite: "T2_3_unshard"
  std::string name;   // name in the suite: "gathers_with_one_collective/W3"; /W3: on 3 ranks
  Outcome outcome;
  // If the test failed: what it printed, then what failed. If it is not started: the function that
  // the student still must write. If it was skipped: the reason. If it passed: empty.
  std::string text{};
  int64_t milliseconds{};
  bool timeline{};   // whether the file that --trace names has the timeline of this test
  bool timed_out{};  // whether a time limit ended the test or one of its ranks
  // The test counts as failed without a run: whole_limit was over before it, or another test of its
  // problem hung.
  bool not_run{};

  bool hangs() const { return timed_out && outcome == Outcome::failed; }
  // The suite and the name: "T2_3_unshard.unshard_changes_no_version_counter/W3".
  std::string full_name() const;
  // The suite and the name without the number of ranks:
  // "T2_3_unshard.unshard_changes_no_version_counter".
  std::string test() const;
  // Returns the end of the name that tells the number of ranks: "W3"; "" if the name does not tell
  // it.
  std::string ranks() const;
};

struct TestRunOptions {
  std::string filter{"*"};                           // --gtest_filter of the test program
  std::chrono::seconds time_limit{90};               // time limit of one test
  std::chrono::seconds whole_limit{86'400};          // time limit of all tests together
  std::function<void(const TestResult&)> on_start;   // called when a test begins
  std::function<void(const TestResult&)> on_result;  // called when a test has ended
  // Returns the problem that a suite belongs to. If this function is set, then after a test that
  // hangs, run_tests() runs no other test of its problem. If it is null, all tests run.
  std::function<std::string(const std::string& suite)> problem_of;
  std::string output{};  // a file to which the output of all tests is appended; empty: none
};

struct TestRun {
  std::vector<TestResult> results;
  // How the program ended, such as "left by exit(3)", if this contradicts the results of its tests;
  // else "".
  std::string wrong_end;
};

// Runs the tests of the program `program`, which writes results as common/testing/results.h
// describes. Returns one result for each test, in the order in which the tests ran.
// - What the program prints while a test runs becomes a part of the test's text if the test fails;
//   it does not decide the result.
// - A test that crashes, calls exit() or exceeds its time limit fails, and its text says so.
//   run_tests() runs the tests after it in a new process. If options.problem_of is set and a test
//   exceeds its time limit, the other tests of its problem fail without being run.
// - When whole_limit is over, the tests without a result fail.
// Throws: std::runtime_error if the program cannot be run, ends before it reports which tests it
// will run, or writes a line that is not a result.
TestRun run_tests(const std::string& program, const TestRunOptions& options);

}  // namespace fsdp
