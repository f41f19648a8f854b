#include <base/child_program.h>
#include <check/test_run.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

namespace fsdp {
namespace {

using namespace std::chrono_literals;
using Clock = ChildProgram::Clock;

// A program whose output is read line by line.
class Program {
 public:
  Program(const std::string& path, const std::vector<std::string>& arguments)
      : child_([&](int pipe) {
          dup2(pipe, STDOUT_FILENO);
          dup2(pipe, STDERR_FILENO);
          dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
          std::vector<std::string> command{path};
          command.insert(command.end(), arguments.begin(), arguments.end());
          return command;
        }) {}

  enum class Read { line, end, timeout };

  // The next line, without its end, or why there is none by `deadline`.
  Read line(std::string& line, Clock::time_point deadline) {
    for (;;) {
      const size_t found = buffer_.find('\n');
      if (found != std::string::npos) {
        line = buffer_.substr(0, found);
        buffer_.erase(0, found + 1);
        return Read::line;
      }
      char bytes[4096];
      const auto count = child_.read(bytes, sizeof bytes, deadline);
      if (!count) return Read::timeout;
      if (*count == 0) return Read::end;
      buffer_.append(bytes, *count);
    }
  }

  std::string end(std::chrono::milliseconds moment) { return child_.end(moment); }

 private:
  ChildProgram child_;
  std::string buffer_;
};

constexpr auto kForListing = 60s;

std::vector<TestResult> list_tests(const std::string& path, const std::string& filter) {
  Program program(path, {"--gtest_list_tests", "--gtest_filter=" + filter});
  std::vector<TestResult> tests;
  std::string line, suite;
  while (program.line(line, Clock::now() + kForListing) == Program::Read::line) {
    line = line.substr(0, line.find("  #"));
    while (!line.empty() && line.back() == ' ')
      line.pop_back();
    if (line.starts_with("  ")) {
      tests.push_back({suite, line.substr(2), Outcome::failed, ""});
    } else if (line.ends_with('.')) {
      suite = line.substr(0, line.size() - 1);
    }
  }
  return tests;
}

std::string seconds(std::chrono::seconds time) {
  return std::to_string(time.count()) + " s\n";
}

// What a line of GoogleTest says of a test: "[  FAILED  ] suite.name, where ... (12 ms)".
struct Mark {
  std::string tag;
  std::string test;
};

std::optional<Mark> mark_of(const std::string& line) {
  const size_t begin = line.find("[ "), end = line.find(" ] ");
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  const size_t first = line.find_first_not_of(' ', begin + 1);
  const std::string tag = line.substr(first, line.find(' ', first) - first);
  const std::string rest = line.substr(end + 3);
  return Mark{tag, rest.substr(0, rest.find_first_of(", "))};
}

// One run of the tests that are left; ends with the last of them or with one that ends the program.
class Attempt {
 public:
  Attempt(const std::string& path, std::vector<TestResult>& tests, const TestRunOptions& options,
          Clock::time_point end)
      : tests_(tests),
        options_(options),
        end_(end),
        program_(path, {"--gtest_filter=" + names(), "--gtest_color=no"}) {}

  void run() {
    std::string line;
    for (;;) {
      const auto read = program_.line(line, std::min(deadline_, end_));
      if (read == Program::Read::line) {
        take(line);
        continue;
      }
      const std::string how = program_.end(read == Program::Read::end ? 5000ms : 0ms);
      if (next_ < tests_.size() && running_) {
        tests_[next_].text +=
            read == Program::Read::timeout
                ? (Clock::now() < end_
                       ? "did not end within " + seconds(options_.time_limit)
                       : "ran when all tests had run for " + seconds(options_.whole_limit))
                : "the test's own process " + how + "\n";
        finish(Outcome::failed);
      } else if (next_ == 0) {
        tests_[next_].text = "the test program " + how + " before its first test\n";
        finish(Outcome::failed);
      }
      return;
    }
  }

  size_t done() const { return next_; }

 private:
  std::string names() const {
    std::string names;
    for (const TestResult& test : tests_)
      names += (names.empty() ? "" : ":") + test.suite + '.' + test.name;
    return names;
  }

  void take(const std::string& line) {
    const auto mark = mark_of(line);
    if (next_ >= tests_.size()) return;
    const std::string expected = tests_[next_].suite + '.' + tests_[next_].name;
    const bool ours = mark && mark->test == expected;
    if (ours && mark->tag == "RUN") {
      running_ = true;
      deadline_ = Clock::now() + options_.time_limit;
    } else if (ours && running_ && mark->tag == "OK") {
      finish(Outcome::passed);
    } else if (ours && running_ && (mark->tag == "FAILED" || mark->tag == "SKIPPED")) {
      finish(Outcome::failed);
    } else if (running_) {
      tests_[next_].text += line + '\n';
    }
  }

  void finish(Outcome outcome) {
    TestResult& test = tests_[next_++];
    running_ = false;
    test.outcome = outcome;
    static const std::string kNotStarted = "not started: ";
    const size_t found = test.text.find(kNotStarted);
    if (found != std::string::npos) {
      test.outcome = Outcome::not_started;
      const size_t begin = found + kNotStarted.size();
      test.text = test.text.substr(begin, test.text.find('\n', begin) - begin);
    }
    if (options_.on_result) options_.on_result(test);
  }

  std::vector<TestResult>& tests_;
  const TestRunOptions& options_;
  Clock::time_point end_;
  size_t next_{};
  bool running_{};
  Program program_;
  Clock::time_point deadline_{Clock::now() + kForListing};
};

}  // namespace

std::vector<TestResult> run_tests(const std::string& program, const TestRunOptions& options) {
  if (access(program.c_str(), X_OK) != 0) throw std::runtime_error(program + " can't be run");
  auto tests = list_tests(program, options.filter);
  if (tests.empty()) throw std::runtime_error(program + " has no test " + options.filter);
  std::vector<TestResult> left = tests, done;
  const auto whole_end = Clock::now() + options.whole_limit;
  while (!left.empty()) {
    if (Clock::now() >= whole_end) {
      for (TestResult& test : left) {
        test.text = "not run: the tests before it took " + seconds(options.whole_limit);
        done.push_back(test);
      }
      break;
    }
    Attempt attempt(program, left, options, whole_end);
    attempt.run();
    const auto end = left.begin() + static_cast<std::ptrdiff_t>(attempt.done());
    if (end == left.begin()) throw std::runtime_error(program + " ends without a result");
    done.insert(done.end(), std::make_move_iterator(left.begin()), std::make_move_iterator(end));
    left.erase(left.begin(), end);
  }
  return done;
}

}  // namespace fsdp
