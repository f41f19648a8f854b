#include <comm/recording.h>
#include <launch/forked_ranks.h>
#include <launch/rank_process.h>
#include <launch/run_ranks.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>

namespace fsdp {
namespace {

[[noreturn]] void end_by(int signal, BlockedSignals& signals) {
  ::signal(signal, SIG_DFL);
  signals.restore();
  raise(signal);
  _exit(128 + signal);
}

void fork_ranks(const Share& share, ForkedRanks& ranks, BlockedSignals& signals,
                const std::function<int(const RankContext&)>& body) {
  // Writes what stdout and std::cout buffer; otherwise each forked rank would write it too.
  std::fflush(nullptr);
  std::cout.flush();
  const pid_t parent = getpid();
  for (int rank = share.first; rank < share.end; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) {
      throw std::system_error(errno, std::generic_category(),
                              "cannot fork rank " + std::to_string(rank));
    }
    if (pid == 0) {
      signals.restore();
      run_rank({rank, share.shared->world_size(), share.shared, share.hosts, share.handover},
               parent, body);
    }
    ranks.add(rank, pid);
  }
}

// Ends the remaining ranks, because a rank has failed in this process or in another one
// (`elsewhere`), or, if none has failed, because a rank was stopped for too long.
void end_ranks(ForkedRanks& ranks, LaunchResult& result, bool elsewhere) {
  for (RankExit& exit : ranks.end_all()) {
    if (elsewhere) result.first_failure = exit.rank;
    if (result.ok() && exit.stopped_by != 0) {
      result.first_failure = exit.rank;
    } else {
      exit.ended_by_launcher = exit.signal == SIGKILL;
    }
    result.ranks[exit.rank] = std::move(exit);
  }
}

// Does what `signal` asks for: passes it on to the ranks, stops or continues them, or ends them and
// this process. Does nothing for SIGCHLD, and nothing for 0, which means that the deadline has
// passed.
void answer(int signal, ForkedRanks& ranks, BlockedSignals& signals,
            const std::function<void()>& on_interrupt) {
  if (signal == 0 || signal == SIGCHLD) return;
  if (signals.passes_on(signal)) {
    ranks.pass_on(signal);
    return;
  }
  if (signal == SIGTSTP) {
    ranks.send(SIGSTOP);
    signals.stop_here();
  }
  if (signal == SIGTSTP || signal == SIGCONT) {
    ranks.send(SIGCONT);
    return;
  }
  ranks.end_all();
  if (on_interrupt) on_interrupt();
  end_by(signal, signals);
}

}  // namespace

LaunchResult run_ranks(const Share& share, BlockedSignals& signals,
                       const std::function<int(const RankContext&)>& body,
                       const std::function<void()>& on_interrupt,
                       const FailuresElsewhere* elsewhere) {
  using Clock = BlockedSignals::Time::clock;
  LaunchResult result;
  result.ranks.resize(share.shared->world_size());
  if (!share.hosts) begin_recording();
  ForkedRanks ranks(share.shared);
  fork_ranks(share, ranks, signals, body);
  for (;;) {
    for (RankExit& exit : ranks.reap()) {
      if (!exit.ok() && result.ok()) result.first_failure = exit.rank;
      result.ranks[exit.rank] = std::move(exit);
    }
    auto wake_at = ranks.limit_of_stopped();
    const bool failed_elsewhere =
        result.ok() && ranks.any() && elsewhere != nullptr && elsewhere->one_has_failed();
    if (!result.ok() || failed_elsewhere || (wake_at && *wake_at <= Clock::now()))
      end_ranks(ranks, result, failed_elsewhere);
    if (!ranks.any()) return result;
    if (elsewhere != nullptr) {
      const auto next_look = Clock::now() + elsewhere->look_every;
      wake_at = std::min(wake_at.value_or(next_look), next_look);
    }
    answer(signals.next(wake_at), ranks, signals, on_interrupt);
  }
}

}  // namespace fsdp
