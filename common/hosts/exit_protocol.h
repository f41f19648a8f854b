#pragma once

#include <hosts/join.h>
#include <hosts/survivor_decision.h>
#include <launch/blocked_signals.h>
#include <launch/hosts.h>
#include <launch/rank_exit.h>
#include <launch/shared_region.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// What the processes of started ranks on several hosts say to one another when a rank has ended.
// They have no memory in common, and a rank that was killed says nothing: so each process appends
// how its rank ended, and the last calls that it made, to the store, and of those whose rank has
// failed one tells the story. A process whose rank lost another one waits for a moment, since how
// that ended is known by its own process. Everything has a time limit, and works as well as it can
// where the store can't be reached.
class ExitProtocol {
 public:
  // Begins to listen for failures of other hosts. Returns null if the ranks are on one host, where
  // shared memory says all, unless spare ranks listen. With `goes_on` a failure may leave
  // survivors.
  static std::unique_ptr<ExitProtocol> listen(const JoinedRun& joined, bool goes_on = false);

  // Whether a rank of another process has failed, or the store is gone. Does not wait. SIGCHLD
  // comes when the store has news; what a process of this host knows that can't reach the store
  // comes without a signal: look again after kLook. If survivors may go on: whether, besides, the
  // decision ends this rank, or it has had the time to notice and to leave its state.
  bool others_failed();
  static constexpr std::chrono::milliseconds kLook{500};

  // Says how this process's rank has ended. Returns the story if it is this process's to tell: one
  // of all hosts that reach the store, and one of each host that does not; else nothing. Takes 3 s
  // at most.
  std::string report_exit(const RankExit& exit);

  // If survivors may go on: says how this process's rank has ended and after how many steps it has
  // left states. Returns what becomes of the run; `ends` also if a signal comes that ends this
  // process. If it goes on, or is done in spite of a failure, the process of rank 0 tells by `tell`
  // who was lost.
  Decision decide_survivors(const RankExit& exit, const std::vector<int64_t>& saved_steps,
                            const AfterLoss& after_loss, BlockedSignals& held,
                            const StoreClientProcess::Log& tell);

  // Before this process ends the store that others still use: waits until all have said how theirs
  // ended, for at most `limit`, or until a signal comes that ends this process.
  void wait_for_all(std::chrono::milliseconds limit, BlockedSignals& held);

  // For a spare rank: waits until all others have ended or one has failed. Returns whether none
  // has. Throws std::runtime_error if the store goes. If survivors may go on, `self` is
  // of_spares() of the first world, and waits until the process of rank 0 calls end_spares().
  static bool all_succeed(const LaunchedRank& self);
  static LaunchedRank of_spares(LaunchedRank self);
  static void end_spares(const LaunchedRank& self, bool succeeded);

 private:
  ExitProtocol(const JoinedRun& joined, bool goes_on);
  std::string decide_survivors(StoreRequests& talk, const RankExit& exit, const std::string& word,
                               const AfterLoss& after_loss) const;
  std::string story_of_the_lost(const std::string& exits, const RankExit& exit) const;
  std::string story_of_a_host(const std::string& ends, const RankExit& exit) const;
  std::string of_one_host(const RankExit& exit) const;

  std::shared_ptr<const Hosts> hosts_;
  std::shared_ptr<SharedRegion> shared_;
  StoreClientProcess listener_;
};

// Writes `text` where torchrun's summary shows it: the file TORCHELASTIC_ERROR_FILE, if it is set.
void write_error_file(const std::string& text);

}  // namespace fsdp
