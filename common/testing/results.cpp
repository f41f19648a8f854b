#include <base/todo.h>
#include <base/write_all.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <testing/error_text.h>
#include <testing/kept_timeline.h>
#include <testing/results.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace fsdp::results {
namespace {

using Json = nlohmann::ordered_json;

// Names of properties that a test's result in GoogleTest can have.
constexpr const char* kNotStarted = "not_started";
constexpr const char* kTimedOut = "timed_out";

int results_file = -1;

void write_record(const Json& record) {
  write_all(results_file, record.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
}

std::string property(const testing::TestResult& result, const std::string& key) {
  for (int i = 0; i < result.test_property_count(); ++i) {
    if (result.GetTestProperty(i).key() == key) return result.GetTestProperty(i).value();
  }
  return "";
}

// Returns the function that is still to be written if the test reached a todo(), else "". If this
// process or a rank that it forked reached a todo(), take_todo() returns its function. If a rank of
// another program did, mark_not_started() has stored the function in `result`.
std::string not_started(const testing::TestResult& result) {
  const std::string here = take_todo();
  return here.empty() && result.Skipped() ? property(result, kNotStarted) : here;
}

// Returns "test_x.cpp:12: Failure\nthe message\n" for each of the first four assertions that did
// not pass, then a line with the number of the other assertions that did not pass.
std::string text_of(const testing::TestResult& result) {
  constexpr int kFailures = 4;
  int failures = 0;
  std::string text;
  for (int i = 0; i < result.total_part_count(); ++i) {
    const testing::TestPartResult& part = result.GetTestPartResult(i);
    if (part.passed() || ++failures > kFailures) continue;
    const std::string line = ':' + std::to_string(part.line_number());
    text += part.file_name() == nullptr ? "unknown file" : part.file_name() + line;
    text += part.skipped() ? ": Skipped\n" : ": Failure\n";
    text += own_words(without_stacks(part.message())) + '\n';
  }
  if (failures > kFailures)
    text += std::to_string(failures - kFailures) + " more assertions of this test failed\n";
  return text;
}

class Writer : public testing::EmptyTestEventListener {
  void OnTestIterationStart(const testing::UnitTest& program, int) override {
    Json tests = Json::array();
    for (int i = 0; i < program.total_test_suite_count(); ++i) {
      const testing::TestSuite& suite = *program.GetTestSuite(i);
      for (int j = 0; j < suite.total_test_count(); ++j) {
        const testing::TestInfo& test = *suite.GetTestInfo(j);
        if (test.should_run()) tests.push_back(std::string(suite.name()) + '.' + test.name());
      }
    }
    write_record({{"event", "plan"}, {"tests", tests}});
  }

  void OnTestStart(const testing::TestInfo& test) override {
    take_todo();
    write_record({{"event", "start"}, {"suite", test.test_suite_name()}, {"name", test.name()}});
  }

  void OnTestEnd(const testing::TestInfo& test) override {
    const testing::TestResult& result = *test.result();
    const std::string unwritten = not_started(result);
    std::fflush(nullptr);
    write_record({{"event", "end"},
                  {"suite", test.test_suite_name()},
                  {"name", test.name()},
                  {"outcome", !unwritten.empty() ? "not started"
                              : result.Failed()  ? "failed"
                              : result.Skipped() ? "skipped"
                                                 : "passed"},
                  {"text", unwritten.empty() ? text_of(result) : unwritten},
                  {"milliseconds", result.elapsed_time()},
                  {"timeline", !property(result, kept_timeline::kWritten).empty()},
                  {"timed_out", !property(result, kTimedOut).empty()},
                  {"printed", lseek(STDOUT_FILENO, 0, SEEK_CUR)}});
  }
};

}  // namespace

void write_to(int file) {
  fcntl(file, F_SETFD, FD_CLOEXEC);
  results_file = file;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Writer);  // GoogleTest owns the Writer, and deletes it
}

void close() {
  if (results_file >= 0) ::close(results_file);
  results_file = -1;
}

void mark_not_started(const std::string& what) {
  testing::Test::RecordProperty(kNotStarted, what);
}

void mark_timed_out() {
  testing::Test::RecordProperty(kTimedOut, "yes");
}

}  // namespace fsdp::results
