#include <comm/call_rings.h>
#include <launch/forked_ranks.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace fsdp {
namespace {

CallRings rings_of(const SharedRegion& shared) {
  return {shared.call_rings(), Group::world(shared.world_size())};
}

bool has_ended(pid_t pid, int flags) {
  siginfo_t info = {};
  return waitid(P_PID, pid, &info, WEXITED | WNOWAIT | flags) == 0 && info.si_pid == pid;
}

}  // namespace

ForkedRanks::ForkedRanks(std::shared_ptr<SharedRegion> shared)
    : shared_(std::move(shared)), ranks_(shared_->world_size()) {}

void ForkedRanks::add(int rank, pid_t pid) {
  setpgid(pid, pid);  // the rank calls setpgid() too, because either process may run first
  ranks_[rank].pid = pid;
}

bool ForkedRanks::any() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Forked& rank) { return rank.pid > 0; });
}

std::vector<RankExit> ForkedRanks::reap() {
  std::vector<RankExit> ended;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (ranks_[i].pid == 0) continue;
    note_stops(rank);
    if (!has_ended(ranks_[i].pid, WNOHANG)) continue;
    ended.push_back(reap(rank));
    if (ended.back().ok()) rings_of(*shared_).set_status(rank, ended.back().status());
  }
  return ended;
}

std::vector<RankExit> ForkedRanks::end_all() {
  send(SIGKILL);
  std::vector<RankExit> ended;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].pid > 0) ended.push_back(reap(static_cast<int>(rank)));
  }
  return ended;
}

void ForkedRanks::send(int signal) {
  for (const Forked& rank : ranks_) {
    if (rank.pid > 0) kill(-rank.pid, signal);
  }
}

void ForkedRanks::pass_on(int signal) const {
  for (const Forked& rank : ranks_) {
    if (rank.pid > 0) kill(rank.pid, signal);
  }
}

std::optional<ForkedRanks::Time> ForkedRanks::limit_of_stopped() const {
  std::optional<Time> limit;
  for (const Forked& rank : ranks_) {
    if (rank.stopped_by == 0) continue;
    // A rank that SIGTTIN has stopped fails at once, because the terminal's input never reaches a
    // rank.
    Time end = rank.stopped_at;
    if (rank.stopped_by != SIGTTIN) end += shared_->longest_wait();
    limit = std::min(limit.value_or(end), end);
  }
  return limit;
}

void ForkedRanks::note_stops(int rank) {
  Forked& forked = ranks_[rank];
  for (;;) {
    siginfo_t info = {};
    const int found = waitid(P_PID, forked.pid, &info, WSTOPPED | WCONTINUED | WNOHANG);
    if (found != 0 || info.si_pid != forked.pid) return;
    const bool stopped = info.si_code != CLD_CONTINUED;
    forked.stopped_by = stopped ? info.si_status : 0;
    forked.stopped_at = Time::clock::now();
    RankStatus status;
    if (stopped) status = {RankStatus::Kind::stopped, info.si_status};
    rings_of(*shared_).set_status(rank, status);
  }
}

// Waits until `rank` has ended, and kills the processes that it has forked.
RankExit ForkedRanks::reap(int rank) {
  Forked& forked = ranks_[rank];
  has_ended(forked.pid, 0);
  // Kills what the rank has forked. This comes before waitpid(), because afterwards another process
  // group may have this number.
  kill(-forked.pid, SIGKILL);
  int status = 0;
  waitpid(forked.pid, &status, 0);
  RankExit exit = describe(rank, status);
  if (exit.signal == SIGKILL) exit.stopped_by = forked.stopped_by;
  forked = {};
  return exit;
}

RankExit ForkedRanks::describe(int rank, int status) const {
  RankExit exit;
  exit.rank = rank;
  if (WIFSIGNALED(status)) {
    exit.signal = WTERMSIG(status);
  } else {
    exit.exit_code = WEXITSTATUS(status);
  }
  exit.message = shared_->message(rank);
  exit.last_call = rings_of(*shared_).last_call(rank);
  return exit;
}

}  // namespace fsdp
