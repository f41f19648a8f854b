#include <base/child_program.h>
#include <base/write_all.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <launch/rank_exit.h>
#include <testing/frames.h>
#include <testing/judge/lost_time.h>
#include <testing/judge/remote_ranks.h>
#include <testing/judge/seed.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace fsdp {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankExit, exit_code, signal, ended_by_launcher, stopped_by,
                                   message, last_call)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankReport, exit, first_to_fail, finished, observations,
                                   observed_after, steps, crash, latest, not_its_own)
}  // namespace fsdp

namespace fsdp::remote_ranks {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunReport, not_started, ranks)

namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using Clock = ChildProgram::Clock;

constexpr uint64_t kMostBytes = uint64_t{64} << 20;  // the most bytes of one report
constexpr auto kToStart = 10s;
constexpr int kStartsInVain = 3;

int report_file = -1;

std::string name_of(const testing::TestInfo& test) {
  return std::string(test.test_suite_name()) + '.' + test.name();
}

// Identifies a run of ranks: the test, and the number of the run within the test. The judge and the
// program of the ranks run the same tests, so both give a run the same number.
struct Place {
  std::string test;
  int run{};

  Place& next() {
    const std::string now = name_of(*testing::UnitTest::GetInstance()->current_test_info());
    run = now == test ? run + 1 : 0;
    test = now;
    return *this;
  }
};

// Returns the names of the running test and of all tests after it, in the form of --gtest_filter.
std::string tests_from_here() {
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  std::string names;
  bool reached = false;
  for (int i = 0; i < tests.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *tests.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      reached = reached || &test == tests.current_test_info();
      if (reached && test.should_run()) names += (names.empty() ? "" : ":") + name_of(test);
    }
  }
  return names;
}

// Called in the forked process that then becomes the program of the ranks. Discards the output of
// that program and returns its command.
std::vector<std::string> command_of_ranks(int reports) {
  std::istringstream words(std::getenv("FSDP_RANKS_OF"));
  std::vector<std::string> command{std::istream_iterator<std::string>(words), {}};
  // `kept`: another descriptor of the file of the reports; exec() does not close it.
  const int kept = fcntl(reports, F_DUPFD, seed_file::kFirstDescriptor);
  command.push_back("--gtest_filter=" + tests_from_here());
  command.push_back("--report_to=" + std::to_string(kept));
  const int nothing = open("/dev/null", O_RDWR);
  for (int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    dup2(nothing, standard);
  setenv(seed_file::kVariable, std::to_string(seed_file::make()).c_str(), 1);
  unsetenv("FSDP_TEST_SEED");
  unsetenv("FSDP_RANKS_OF");
  return command;
}

// The running program of the ranks, and its reports. If the program does not send what is expected,
// the member functions throw std::runtime_error. The text of this error, such as "left out a run of
// ranks", lacks the subject "the program of the ranks", which receive() puts before it.
class Program {
 public:
  // Returns the report of the run `place`. Skips reports of earlier tests that the judge did not
  // ask for.
  Json report_of(const Place& place) {
    for (;;) {
      Json report = next_report();
      if (report.at("test") != place.test) continue;
      if (report.at("run") == place.run) return report;
      if (report.at("run") > place.run) throw std::runtime_error("left out a run of ranks");
    }
  }

  // Returns whether the program of the ranks has reported nothing for as long as its start and one
  // run may take, so that another start would not help.
  bool is_hopeless() const { return late_ && !has_reported_; }
  bool is_late() const { return late_; }
  bool has_sent() const { return has_sent_; }  // whether the program of the ranks has sent any byte

 private:
  Json next_report() {
    const auto deadline = Clock::now() + kToStart + kTimeLimit;
    uint64_t length = 0;
    read(&length, sizeof length, deadline);
    if (length > kMostBytes) throw std::runtime_error("sent something that is not a report");
    std::string bytes(length, '\0');
    read(bytes.data(), length, deadline);
    has_reported_ = true;
    return from_frame(bytes);
  }

  void read(void* into, uint64_t count, Clock::time_point deadline) {
    auto* at = static_cast<char*>(into);
    while (count > 0) {
      const auto got = child_.read(at, count, deadline);
      late_ = !got;
      if (late_) {
        throw std::runtime_error("did not report within " +
                                 std::to_string((kToStart + kTimeLimit).count()) + " s");
      }
      if (*got == 0) throw std::runtime_error(child_.end(1s).text());
      has_sent_ = true;
      at += *got;
      count -= *got;
    }
  }

  ChildProgram child_{command_of_ranks};
  bool has_sent_{};
  bool has_reported_{};
  bool late_{};
};

RunReport to_run(const Json& report, int world_size) {
  auto run = report.get<RunReport>();
  for (size_t rank = 0; rank < run.ranks.size(); ++rank)
    run.ranks[rank].exit.rank = static_cast<int>(rank);
  if (run.not_started.empty() && run.ranks.size() != static_cast<size_t>(world_size)) {
    throw std::runtime_error("reported " + std::to_string(run.ranks.size()) + " ranks of " +
                             std::to_string(world_size));
  }
  return run;
}

}  // namespace

bool judging() {
  return std::getenv("FSDP_RANKS_OF") != nullptr;
}

void report_to(int file) {
  report_file = file;
}

bool reporting() {
  return report_file >= 0;
}

void report(const RunReport& run) {
  static Place place;
  place.next();
  Json sent = run;
  sent["test"] = place.test;
  sent["run"] = place.run;
  write_all(report_file, to_frame(sent));
}

void close() {
  if (report_file >= 0) ::close(report_file);
}

RunReport receive(int world_size) {
  static std::optional<Program> program;
  static Place place;
  // `hopeless`: why the program of the ranks is not started again; empty: it may be started again.
  static std::string hopeless;
  // `in_vain`: how many times in a row the program of the ranks was started and sent nothing.
  static int in_vain = 0;
  static LostTime lost = LostTime::from_environment();
  const std::string suite =
      testing::UnitTest::GetInstance()->current_test_info()->test_suite_name();
  place.next();
  if (!hopeless.empty()) throw std::runtime_error(hopeless);
  if (const std::string why = lost.refusal(suite); !why.empty()) {
    // Ends the program of the ranks, because it would continue with the tests of this problem. A
    // test of another problem starts the program again.
    program.reset();
    throw std::runtime_error(why);
  }
  std::string wrong;
  try {
    if (!program) program.emplace();
    RunReport run = to_run(program->report_of(place), world_size);
    lost.add(suite, lost_by(run.ranks, kTimeLimit));
    return run;
  } catch (const Json::exception&) {
    wrong = "sent something that is not a report";
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  wrong = "the program of the ranks " + wrong + " before a run of " + std::to_string(world_size) +
          " ranks was over";
  if (program && program->is_late()) lost.add(suite, kTimeLimit);
  in_vain = program && program->has_sent() ? 0 : in_vain + 1;
  if ((program && program->is_hopeless()) || in_vain == kStartsInVain) hopeless = wrong;
  program.reset();
  throw std::runtime_error(wrong);
}

}  // namespace fsdp::remote_ranks
