#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

enum class Outcome { passed, failed, not_started, skipped };
const char* to_string(Outcome outcome);  // "not started"

struct TestResult {
  std::string suite;  // T2_3_unshard
  std::string name;   // gathers_with_one_collective/W3
  Outcome outcome;
  std::string text{};  // its output, then what failed; if it is not started, the function that is
                       // still to be written
  int64_t milliseconds{};
  bool timeline{};   // the file of --trace has the timeline of this test
  bool timed_out{};  // a time limit ended the test or one of its ranks
  bool not_run{};    // the test counts as failed without a run: whole_limit was over before it, or
                     // another test of its problem hung

  bool hangs() const { return timed_out && outcome == Outcome::failed; }
  std::string full_name() const;  // "T2_3_unshard.autograd_sees_no_change/W3"
  std::string test() const;       // "T2_3_unshard.autograd_sees_no_change"
  std::string ranks() const;      // "W3"; "" if the test has no number of ranks
};

struct TestRunOptions {
  std::string filter{"*"};                           // GoogleTest's filter
  std::chrono::seconds time_limit{90};               // of one test
  std::chrono::seconds whole_limit{86'400};          // of all tests together
  std::function<void(const TestResult&)> on_start;   // called when a test begins
  std::function<void(const TestResult&)> on_result;  // called when a test has ended
  // Returns the problem of a suite. After a test that hangs, no other test of its problem runs. If
  // this function is null, all tests run.
  std::function<std::string(const std::string& suite)> problem_of;
  std::string output{};  // a file to which the output of all tests is appended; empty: none
};

struct TestRun {
  std::vector<TestResult> results;
  // The end of the program, such as "left by exit(3)", if it contradicts the results; else empty.
  std::string wrong_end;
};

// Runs the tests of the program `program`, which writes results as common/testing/results.h
// describes. Returns one result for each test, in the order in which the tests ran.
// - The program's output becomes the text of the running test; it does not decide the result.
// - A test that crashes, calls exit() or exceeds its time limit fails, and its text says so. The
//   tests after it run in a new process. With problem_of, other tests of the problem of a test that
//   exceeded its time limit fail without being run.
// - When whole_limit is over, the tests without a result fail.
// Throws: std::runtime_error if the program cannot be run, ends before it reports which tests it
// will run, or writes a line that is not a result.
TestRun run_tests(const std::string& program, const TestRunOptions& options);

}  // namespace fsdp
