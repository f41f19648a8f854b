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
  std::string text{};  // what it printed, then what failed; of a test that is not started: the
                       // function that is still to be written
  int64_t milliseconds{};
  bool timeline{};   // whether the file of --trace has its timeline
  bool timed_out{};  // it, or one of its ranks, was ended by a time limit
  bool not_run{};    // it failed because a limit was reached before it began

  bool hangs() const { return timed_out && outcome == Outcome::failed; }
  std::string full_name() const;  // "T2_3_unshard.autograd_sees_no_change/W3"
  // "T2_3_unshard.autograd_sees_no_change" and "W3", which is empty for a test that has no
  // number of ranks.
  std::string test() const;
  std::string ranks() const;
};

struct TestRunOptions {
  std::string filter{"*"};                           // GoogleTest's
  std::chrono::seconds time_limit{90};               // of one test
  std::chrono::seconds whole_limit{86'400};          // of all together
  std::function<void(const TestResult&)> on_start;   // called when a test begins
  std::function<void(const TestResult&)> on_result;  // called when a test has ended
  // The problem of a suite: after a test that hangs, no other test of its problem runs. Null: all
  // tests run.
  std::function<std::string(const std::string& suite)> problem_of;
  std::string output{};  // a file to which all is appended that the tests print; empty: none
};

struct TestRun {
  std::vector<TestResult> results;
  std::string wrong_end;  // how the program ended, if not as the results say: "left by exit(3)"
};

// Runs the tests of the program `program`, which writes results as common/testing/results.h says,
// and returns one result for each test, in the order in which they ran. What the program prints is
// text of the running test and decides nothing. A test that crashes, calls exit() or exceeds its
// time limit fails and its text says so; the tests after it run in a new process, unless problem_of
// says that they are of its problem: then they fail without being run. When whole_limit is over,
// the tests that are left fail. Throws std::runtime_error if the program cannot be run or ends
// before it says which tests it will run.
TestRun run_tests(const std::string& program, const TestRunOptions& options);

}  // namespace fsdp
