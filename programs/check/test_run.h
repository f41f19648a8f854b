#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

enum class Outcome { passed, failed, not_started };

struct TestResult {
  std::string suite;  // T2_3_unshard
  std::string name;   // gathers_with_one_collective/W3
  Outcome outcome;
  std::string text;  // what it printed, or what became of it; of a test not started: the symbol
};

struct TestRunOptions {
  std::string filter{"*"};                           // GoogleTest's
  std::chrono::seconds time_limit{90};               // of one test
  std::chrono::seconds whole_limit{86'400};          // of all together; those that are left fail
  std::function<void(const TestResult&)> on_result;  // as each test ends
};

// Runs the tests of the GoogleTest program `program` and returns one result for each, in order. A
// test that crashes, leaves by exit() or exceeds the time limit has failed and says so; the tests
// after it run all the same. Throws std::runtime_error if the program can't be run or lists no
// test.
std::vector<TestResult> run_tests(const std::string& program, const TestRunOptions& options);

}  // namespace fsdp
