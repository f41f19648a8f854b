#include <base/mapping.h>
#include <base/processes.h>
#include <base/refused_call.h>
#include <base/todo.h>
#include <comm/recording.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <launch/rank_exit.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <memory/poison.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <testing/channel.h>
#include <testing/end_test.h>
#include <testing/judge/remote_ranks.h>
#include <testing/kept_timeline.h>
#include <testing/multi_rank.h>
#include <testing/rank_report.h>
#include <testing/results.h>
#include <testing/story.h>
#include <testing/wrong_observation.h>
#include <trace/recorder.h>
#include <watch/watch.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

namespace fsdp {
namespace {

using remote_ranks::RunReport;

// Makes a failed assertion in a rank throw an exception instead of printing its text.
void throw_failed_assertions() {
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  testing::GTEST_FLAG(throw_on_failure) = true;
}

// Makes SIGALRM end this rank after `limit`. A rank that is replayed has no limit.
void set_time_limit(std::chrono::milliseconds limit) {
  if (replays()) return;
  const auto microseconds = std::chrono::microseconds(limit).count();
  itimerval timer{};
  timer.it_value = {microseconds / 1'000'000, microseconds % 1'000'000};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

// on_crash() handles SIGSEGV in this rank: it stores the address of the access in
// *crash_of_this_rank for the report, and restores the default action, so that SIGSEGV ends the
// rank when on_crash() returns and the access is repeated.
Crash* crash_of_this_rank = nullptr;
void on_crash(int signal, siginfo_t* info, void*) {
  crash_of_this_rank->address = reinterpret_cast<uintptr_t>(info->si_addr);
  crash_of_this_rank->seen = true;
  std::signal(signal, SIG_DFL);
}

void keep_refusal(const char* function) {
  std::strncpy(crash_of_this_rank->refused, function, sizeof crash_of_this_rank->refused - 1);
}

void report_crash(Crash& crash) {
  crash_of_this_rank = &crash;
  on_refused_call(keep_refusal);
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

// Memory that the ranks of a run share with the test's process, which reads it after the ranks have
// ended.
struct Shared {
  Shared(int world_size, bool record)
      : channels(world_size),
        memory("run_ranks", world_size * sizeof(Crash)),
        events(record ? EventLog::create(world_size) : nullptr) {}
  Crash& crash_of(int rank) const { return reinterpret_cast<Crash*>(memory.base())[rank]; }

  RankReport report(const RankExit& exit, const LaunchResult& result) const {
    const int rank = exit.rank;
    const bool complete = events != nullptr && events->dropped(rank) == 0;
    return read_report(exit, rank == result.first_failure, channels[rank],
                       complete ? events->events(rank) : std::vector<Event>(), &crash_of(rank));
  }

  std::vector<Channel> channels;     // [world_size], one for the frames of each rank
  Mapping memory;                    // an array of Crash, one for each rank
  std::shared_ptr<EventLog> events;  // what the ranks did; null: events are not recorded
};

int run_rank(const RankContext& context, const RankBody& body, const RunOptions& options,
             Shared& shared) {
  results::close();
  remote_ranks::close();
  Channel& channel = shared.channels[context.rank];
  set_time_limit(options.time_limit);
  const rlimit no_core_files{};
  setrlimit(RLIMIT_CORE, &no_core_files);
  report_crash(shared.crash_of(context.rank));
  throw_failed_assertions();
  counting_allocator::install();
  poison::enable();
  watch::begin(context.rank);
  at::set_num_threads(1);
  {
    std::optional<Recorder> recorder;
    if (shared.events) recorder.emplace(shared.events, context.rank, options.clock);
    TestRank rank(context, options, channel);
    body(rank);
  }
  channel.send(finished_frame());
  return 0;
}

RunReport run_here(int world_size, const RankBody& body, RunOptions options) {
  using remote_ranks::kTimeLimit;
  // If FSDP_DEBUG is set, a debugger may stop a rank for a long time, so the limits are 1 hour.
  if (std::getenv("FSDP_DEBUG") != nullptr)
    options.timeout = options.time_limit = std::chrono::hours(1);
  if (remote_ranks::reporting() && options.time_limit > kTimeLimit) options.time_limit = kTimeLimit;
  require_one_thread("run_ranks()");
  take_todo();
  Shared shared(world_size, options.record);
  const LaunchResult result = launch(world_size, [&](const RankContext& context) {
    return run_rank(context, body, options, shared);
  });
  RunReport run{take_todo(), {}};
  if (!run.not_started.empty()) return run;
  kept_timeline::keep(shared.events);
  for (const RankExit& exit : result.ranks)
    run.ranks.push_back(shared.report(exit, result));
  return run;
}

RunReport guarded(const char* file, int line, const std::function<RunReport()>& run) {
  try {
    return run();
  } catch (const std::runtime_error& error) {
    end_test(testing::TestPartResult::kFatalFailure, file, line, error.what());
  }
}

RankRun to_run(const RunReport& run, const char* file, int line) {
  if (!run.not_started.empty()) {
    results::mark_not_started(run.not_started);
    end_test(testing::TestPartResult::kSkip, file, line, "not started: " + run.not_started);
  }
  const auto timed_out = [](const RankReport& report) { return report.exit.signal == SIGALRM; };
  if (std::ranges::any_of(run.ranks, timed_out)) results::mark_timed_out();
  return RankRun(run.ranks, recorded_run_number());
}

RankRun succeeded(RankRun run, const char* file, int line) {
  if (!run.failure().empty()) {
    keep_failure(run);
    end_test(testing::TestPartResult::kFatalFailure, file, line, run.failure());
  }
  return run;
}

}  // namespace

RankRun try_ranks(int world_size, const RankBody& body, const RunOptions& options, const char* file,
                  int line) {
  const RunReport run = guarded(file, line, [&] {
    return remote_ranks::judging() ? remote_ranks::receive(world_size)
                                   : run_here(world_size, body, options);
  });
  if (remote_ranks::reporting()) remote_ranks::report(run);
  return to_run(run, file, line);
}

RankRun run_ranks(int world_size, const RankBody& body, const RunOptions& options, const char* file,
                  int line) {
  return succeeded(try_ranks(world_size, body, options, file, line), file, line);
}

RankRun run_oracle(const RankBody& body, const char* file, int line) {
  const RunReport run = guarded(file, line, [&] { return run_here(1, body, {}); });
  return succeeded(to_run(run, file, line), file, line);
}

namespace {
int world_size_of_test{};
}

int MultiRankTest::world_size() {
  return world_size_of_test;
}

bool MultiRankTest::add(const char* suite, const char* name, const std::vector<int>& world_sizes,
                        MultiRankTest* (*make)(), const char* file, int line) {
  for (const int world_size : fsdp::world_sizes(world_sizes)) {
    testing::RegisterTest(suite, (std::string(name) + "/W" + std::to_string(world_size)).c_str(),
                          nullptr, nullptr, file, line, [=]() -> MultiRankTest* {
                            world_size_of_test = world_size;
                            return make();
                          });
  }
  return true;
}

}  // namespace fsdp
