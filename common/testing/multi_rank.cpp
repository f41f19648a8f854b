#include <memory/live_bytes.h>
#include <memory/poison.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <testing/channel.h>
#include <testing/multi_rank.h>
#include <testing/rank_report.h>
#include <todo.h>

#include <filesystem>

namespace fsdp {
namespace {

// Sends the assertions that fail in a rank to the test's process, in place of printing them.
class AssertionSender : public testing::EmptyTestEventListener {
 public:
  explicit AssertionSender(Channel& channel) : channel_(channel) {}

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    if (result.fatally_failed()) fatal_ = true;
    channel_.send(assertion_frame({result.file_name() ? result.file_name() : "unknown file",
                                   result.line_number(), result.message()}));
  }
  bool fatal() const { return fatal_; }

 private:
  Channel& channel_;
  std::atomic<bool> fatal_{false};
};

AssertionSender& send_assertions(Channel& channel) {
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  auto* sender = new AssertionSender(channel);  // NOLINT: the listeners own it
  listeners.Append(sender);
  return *sender;
}

// SIGALRM ends the rank, whatever it is doing.
void set_time_limit(std::chrono::milliseconds limit) {
  const auto microseconds = std::chrono::microseconds(limit).count();
  itimerval timer{};
  timer.it_value = {microseconds / 1'000'000, microseconds % 1'000'000};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

int run_rank(const RankContext& context, const RankBody& body, const RunOptions& options,
             Channel& channel) {
  set_time_limit(options.time_limit);
  const rlimit no_core_files{};
  setrlimit(RLIMIT_CORE, &no_core_files);
  AssertionSender& assertions = send_assertions(channel);
  live_bytes::install();
  poison::enable();
  at::set_num_threads(1);
  {
    TestRank rank(context, options, channel);
    body(rank);
  }
  if (assertions.fatal()) return 1;
  channel.send(finished_frame());
  return 0;
}

// A fork copies the calling thread alone: locks that other threads hold stay locked in the child.
void require_one_thread() {
  const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
  const auto threads = std::distance(begin(tasks), end(tasks));
  if (threads > 1) {
    throw std::logic_error("run_ranks: the test's process has " + std::to_string(threads) +
                           " threads and can't fork; run what uses torch in a rank");
  }
}

// Ends the running test. GoogleTest takes the exception for one that was reported.
[[noreturn]] void end_test(testing::TestPartResult::Type type, const char* file, int line,
                           const std::string& text) {
  GTEST_MESSAGE_AT_(file, line, text.c_str(), type);
  throw testing::AssertionException(testing::TestPartResult(type, file, line, text.c_str()));
}

}  // namespace

TestRank::TestRank(const RankContext& context, const RunOptions& options, Channel& channel)
    : context_(context), options_(options), channel_(channel) {}

const std::shared_ptr<Communicator>& TestRank::communicator() {
  if (!communicator_) {
    const CommunicatorOptions options{options_.backend, options_.timeout, options_.fault,
                                      options_.link, options_.clock};
    communicator_ = Communicator::create(context_, options);
  }
  return communicator_;
}

void TestRank::observe(const std::string& name, const nlohmann::json& value) {
  if (!names_.insert(name).second) {
    throw std::logic_error("observe: \"" + name + "\" was observed before on this rank");
  }
  channel_.send(observation_frame(name, value));
}

void TestRank::observe(const std::string& name, const at::Tensor& tensor) {
  observe(name, to_observation(tensor));
}

RankRun::RankRun(std::vector<RankReport> ranks) : failure_(describe_failure(ranks)) {
  for (RankReport& report : ranks)
    observations_.push_back(std::move(report.observations));
}

bool RankRun::observed(int rank, const std::string& name) const {
  return observations_.at(rank).count(name) > 0;
}

const nlohmann::json& RankRun::at(int rank, const std::string& name, const char* file,
                                  int line) const {
  const auto& observed = observations_.at(rank);
  const auto found = observed.find(name);
  if (found != observed.end()) return found->second;
  std::string names;
  for (const auto& [other, value] : observed)
    names += (names.empty() ? "" : ", ") + other;
  end_test(testing::TestPartResult::kFatalFailure, file, line,
           "rank " + std::to_string(rank) + " did not observe \"" + name + "\", only: " + names);
}

ObservedTensor RankRun::tensor(int rank, const std::string& name, const char* file,
                               int line) const {
  return to_tensor(at(rank, name, file, line));
}

RankRun try_ranks(int world_size, const RankBody& body, const RunOptions& options, const char* file,
                  int line) {
  require_one_thread();
  take_todo();
  std::vector<Channel> channels(world_size);
  const LaunchResult result = launch(world_size, [&](const RankContext& context) {
    return run_rank(context, body, options, channels[context.rank]);
  });
  if (const std::string unwritten = take_todo(); !unwritten.empty()) {
    testing::Test::RecordProperty("not_started", unwritten);
    end_test(testing::TestPartResult::kSkip, file, line, "not started: " + unwritten);
  }
  std::vector<RankReport> reports;
  for (const RankExit& exit : result.ranks) {
    reports.push_back(read_report(exit, exit.rank == result.first_failure, channels[exit.rank]));
  }
  return RankRun(std::move(reports));
}

RankRun run_ranks(int world_size, const RankBody& body, const RunOptions& options, const char* file,
                  int line) {
  RankRun run = try_ranks(world_size, body, options, file, line);
  if (!run.failure().empty()) {
    end_test(testing::TestPartResult::kFatalFailure, file, line, run.failure());
  }
  return run;
}

}  // namespace fsdp
