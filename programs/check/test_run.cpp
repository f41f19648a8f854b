#include <base/child_program.h>
#include <check/printed.h>
#include <check/test_run.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

namespace fsdp {
namespace {

using namespace std::chrono_literals;
using Clock = ChildProgram::Clock;

constexpr auto kToBegin = 60s;  // time limit for the test program to begin its next test
constexpr auto kToEnd = 5s;     // time limit for the test program to end after its last record
// [bytes] If a test program prints more than this, check ends it.
constexpr int64_t kMostPrinted = int64_t{256} << 20;

// A running test program, its output, and the records, lines of JSON, in which it reports results.
class TestProgram {
 public:
  TestProgram(const std::string& path, const std::string& filter)
      : child_([&](int records) { return command(path, filter, records); }) {}

  enum class Read { record, end, timeout, flood };

  // Reads the next record into `record` and returns Read::record. If there is none, returns why:
  // the program has ended, `deadline` has passed, or the program has printed more than
  // kMostPrinted. Throws std::runtime_error if the program wrote a line that is not a record.
  Read next(nlohmann::json& record, Clock::time_point deadline) {
    for (;;) {
      const size_t end = records_.find('\n');
      if (end != std::string::npos) {
        const std::string line = records_.substr(0, end);
        records_.erase(0, end + 1);
        record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
        if (!record.is_object())
          throw std::runtime_error("the test program wrote a line that is not a result: " + line);
        return Read::record;
      }
      char bytes[4096];
      const auto count = child_.read(bytes, sizeof bytes, std::min(deadline, Clock::now() + 1s));
      if (count && *count == 0) return Read::end;
      if (count) records_.append(bytes, *count);
      if (!count && Clock::now() >= deadline) return Read::timeout;
      if (printed_.size() > kMostPrinted) return Read::flood;
    }
  }

  // Returns what the test program has written to stdout and stderr.
  const Printed& printed() const { return printed_; }

  ChildProgram::End end(std::chrono::milliseconds moment) { return child_.end(moment); }

 private:
  // ChildProgram calls this in the child process. Redirects stdin, stdout and stderr of the child,
  // and returns the command that the child then executes. `records`: the pipe for the records.
  std::vector<std::string> command(const std::string& path, const std::string& filter,
                                   int records) const {
    dup2(printed_.number(), STDOUT_FILENO);
    dup2(printed_.number(), STDERR_FILENO);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    const int kept = fcntl(records, F_DUPFD, 3);  // exec() does not close this copy of `records`
    return {path, "--results_to=" + std::to_string(kept), "--gtest_filter=" + filter};
  }

  Printed printed_;
  ChildProgram child_;   // the test program; it writes the records to its pipe
  std::string records_;  // bytes read from the pipe that next() has not returned yet
};
using Read = TestProgram::Read;

std::string seconds(std::chrono::seconds time) {
  return std::to_string(time.count()) + " s\n";
}

Outcome outcome_of(const std::string& text) {
  for (const Outcome outcome : {Outcome::passed, Outcome::not_started, Outcome::skipped}) {
    if (text == to_string(outcome)) return outcome;
  }
  return Outcome::failed;
}

size_t ranks_at(const std::string& name) {
  return std::min(name.rfind("/W"), name.size());
}

// Runs the tests of `filter` in one process. The process ends when all of them have run, when one
// of them crashes or calls exit(), or when a time limit or the limit of output is exceeded.
class Attempt {
 public:
  Attempt(const std::string& path, const std::string& filter, const TestRunOptions& options,
          Clock::time_point end)
      : options_(options), end_(end), program_(path, filter) {}

  void run() {
    nlohmann::json record;
    auto read = program_.next(record, until());
    for (; read == Read::record && !is_stopped(); read = program_.next(record, until()))
      take(record);
    const ChildProgram::End how = program_.end(read == Read::end ? kToEnd : 0s);
    if (is_stopped()) return;
    const Printed& all = program_.printed();
    const int64_t end = all.size();
    const std::string printed = all.shown(printed_, end);
    if (running_) {
      keep_printed(end);
      running_->timed_out = read == Read::timeout && Clock::now() < end_;
      running_->text = printed + why_it_ended(read, how);
      finish();
    } else {
      ended_ = how.text() + (printed.empty() ? "" : " and printed:\n" + printed);
      as_expected_ = how.signal == 0 && how.code <= (any_failed() ? 1 : 0);
    }
  }

  // Returns the names ("suite.name") of all tests that the program announced to run; nothing if the
  // program ended before it announced them.
  const std::optional<std::vector<std::string>>& plan() const { return plan_; }
  std::vector<TestResult>& results() { return results_; }
  // Returns how the program ended, and what it printed after its last test; "" if it ended while a
  // test ran.
  const std::string& ended() const { return ended_; }
  // Returns whether the program's end agrees with its results: no signal, and exit status 0, or 1
  // if a test failed.
  bool as_expected() const { return as_expected_; }

 private:
  // Returns the error for the test that was running when the program ended or was killed.
  std::string why_it_ended(Read read, const ChildProgram::End& how) const {
    if (read == Read::end) return "the test's own process " + how.text() + '\n';
    if (read == Read::flood) return "printed more than 256 MiB\n";
    if (Clock::now() < end_) return "did not end within " + seconds(options_.time_limit);
    return "was still running when the limit of all tests was over, " +
           seconds(options_.whole_limit);
  }

  // Returns whether run() must kill the test program, because its last test hung and
  // options_.problem_of asks that no other test of the same problem runs.
  bool is_stopped() const {
    return options_.problem_of && !running_ && !results_.empty() && results_.back().hangs();
  }

  void keep_printed(int64_t end) const {
    if (!options_.output.empty())
      program_.printed().append_to(options_.output, running_->full_name(), printed_, end);
  }

  bool any_failed() const {
    return std::ranges::any_of(results_, [](const TestResult& result) {
      return result.outcome == Outcome::failed || result.outcome == Outcome::not_started;
    });
  }

  Clock::time_point until() const { return std::min(deadline_, end_); }

  void take(const nlohmann::json& record) {
    const std::string event = record.value("event", "");
    if (event == "plan") {
      plan_ = record.at("tests").get<std::vector<std::string>>();
    } else if (event == "start") {
      running_ = TestResult{record.at("suite"), record.at("name"), Outcome::failed};
      deadline_ = Clock::now() + options_.time_limit;
      if (options_.on_start) options_.on_start(*running_);
    } else if (event == "end" && running_) {
      running_->outcome = outcome_of(record.at("outcome"));
      running_->milliseconds = record.at("milliseconds");
      running_->timeline = record.value("timeline", false);
      running_->timed_out = record.value("timed_out", false);
      const int64_t end = record.at("printed");
      keep_printed(end);
      if (running_->outcome == Outcome::failed)
        running_->text = program_.printed().shown(printed_, end);
      printed_ = end;
      running_->text += record.at("text").get<std::string>();
      finish();
    }
  }

  void finish() {
    results_.push_back(*running_);
    running_.reset();
    deadline_ = Clock::now() + kToBegin;
    if (options_.on_result) options_.on_result(results_.back());
  }

  const TestRunOptions& options_;
  Clock::time_point end_;
  TestProgram program_;
  Clock::time_point deadline_{Clock::now() + kToBegin};
  std::optional<std::vector<std::string>> plan_;
  std::optional<TestResult> running_;
  int64_t printed_{};  // [bytes] size of the program's output when its latest test ended
  std::vector<TestResult> results_;
  std::string ended_;
  bool as_expected_{true};
};

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "" : ":") + name;
  return text;
}

// Returns a failed result for a test that is not run, with the reason `why`.
TestResult not_run(const std::string& test, const std::string& why) {
  const size_t dot = test.find('.');
  TestResult result{test.substr(0, dot), test.substr(dot + 1), Outcome::failed, "not run: " + why};
  result.not_run = true;
  return result;
}

// If the last test of `results` hung and options.problem_of is set, moves the other tests of its
// problem from `left` to `results`, as failed, because each of them might hang too.
void stop_problem(std::vector<TestResult>& results, std::vector<std::string>& left,
                  const TestRunOptions& options) {
  if (!options.problem_of || results.empty() || !results.back().hangs()) return;
  const TestResult cause = results.back();
  const std::string problem = options.problem_of(cause.suite);
  std::erase_if(left, [&](const std::string& test) {
    if (options.problem_of(test.substr(0, test.find('.'))) != problem) return false;
    results.push_back(not_run(test, cause.full_name() + " did not end\n"));
    return true;
  });
}

}  // namespace

const char* to_string(Outcome outcome) {
  constexpr std::array kNames{"passed", "failed", "not started", "skipped"};
  return kNames[static_cast<size_t>(outcome)];
}

std::string TestResult::test() const {
  return suite + '.' + name.substr(0, ranks_at(name));
}

std::string TestResult::ranks() const {
  const size_t at = ranks_at(name);
  return at == name.size() ? "" : name.substr(at + 1);
}

std::string TestResult::full_name() const {
  return suite + '.' + name;
}

TestRun run_tests(const std::string& program, const TestRunOptions& options) {
  if (access(program.c_str(), X_OK) != 0) throw std::runtime_error(program + " can't be run");
  const auto end = Clock::now() + options.whole_limit;
  TestRun run;
  std::optional<std::vector<std::string>> left;  // names of the tests without a result
  while (!left || !left->empty()) {
    Attempt attempt(program, left ? joined(*left) : options.filter, options, end);
    attempt.run();
    if (!left) left = attempt.plan();
    if (!left) throw std::runtime_error(program + ' ' + attempt.ended() + " before its first test");
    run.wrong_end = attempt.as_expected() ? "" : attempt.ended();
    bool any = false;
    for (TestResult& result : attempt.results()) {
      // If the program reports a test twice or one that it had not planned, the result is ignored.
      if (std::erase(*left, result.suite + '.' + result.name) == 0) continue;
      run.results.push_back(std::move(result));
      any = true;
    }
    if (Clock::now() >= end) {
      for (const std::string& test : *left)
        run.results.push_back(
            not_run(test, "the tests before it took " + seconds(options.whole_limit)));
      break;
    }
    if (any) stop_problem(run.results, *left, options);
    if (!left->empty() && !any)
      throw std::runtime_error(program + ' ' + attempt.ended() + " without a result");
  }
  return run;
}

}  // namespace fsdp
