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

// How hosts tell one another that ranks have ended. Hosts share no memory, and a killed rank
// reports nothing. So each process appends to the store how its rank ended and the last calls of
// the rank, and one process whose rank has failed prints the error. If a rank failed because
// another one was missing, the process of this rank first waits a moment, because the process of
// the missing rank knows the cause and prints it. Every step has a time limit. If a host can't
// reach the store, one process of this host prints the error.
class ExitProtocol {
 public:
  // Starts to listen for failures on other hosts. Returns null if ExitProtocol is not needed: if
  // all ranks are on one host, where shared memory shows all failures, and the launcher has started
  // no spare ranks (ranks that the run does not use), which would listen to the store. With
  // `goes_on`, surviving ranks may continue the run after a failure.
  static std::unique_ptr<ExitProtocol> listen(const JoinedRun& joined, bool goes_on = false);

  // Returns whether this process must end its rank because a rank of another process has failed, or
  // because the store is gone. Does not wait.
  // - SIGCHLD arrives when the child process that watches the store has seen a failure, or can't
  //   reach the store. No signal arrives for a failure that another process of this host knows but
  //   could not write to the store: so call others_failed() again after kLook.
  // - With `goes_on` of listen(), a failure alone does not make the result true, so that this rank
  //   can notice the failure itself and save its state. The result becomes true when the decision
  //   on the run is made (and, if it is Kind::done, all ranks have ended), or when time_to_end()
  //   has passed.
  bool others_failed();
  static constexpr std::chrono::milliseconds kLook{500};

  // Reports to the other hosts how the rank of this process has ended. Returns the error text if
  // this process must print it, else an empty text: one process of all hosts that reach the store
  // prints the error, and one process of each host that does not reach the store. Takes at most 3
  // s.
  std::string report_exit(const RankExit& exit);

  // For a run that may continue after a failure (`goes_on` of listen()): reports how the rank of
  // this process has ended, and the numbers of steps after which the rank has saved its states.
  // Returns the decision on the run, which is Kind::fail also if the store is gone, or if a signal
  // arrives that ends this process. If the run continues, or is done in spite of a failure, the
  // process of rank 0 reports through `log` which host was lost.
  Decision decide_survivors(const RankExit& exit, const std::vector<int64_t>& saved_steps,
                            const AfterLoss& after_loss, BlockedSignals& signals,
                            const StoreClientProcess::Log& log);

  // For the process that hosts the store and ends it when it exits: waits until all processes have
  // reported how their ranks ended, for at most `limit`, and then until `spares` spare ranks
  // (ranks that the run does not use) have returned from all_succeed(), for at most 2 s. A signal
  // that ends this process ends the wait.
  void wait_for_all(std::chrono::milliseconds limit, int spares, BlockedSignals& signals);

  // - A spare rank, which the run does not use, calls all_succeed(): it waits until all ranks of
  //   the run have ended or one has failed, and returns whether no rank has failed. Throws
  //   std::runtime_error if the store is gone.
  // - If survivors may continue the run after a loss, a spare rank calls
  //   all_succeed(of_spares(self)) instead. This call returns `succeeded` when the process of rank
  //   0 calls end_spares(), which waits until `spares` spare ranks have returned from
  //   all_succeed(), for at most 2 s. `self` is the rank of the process in the first world, before
  //   any loss.
  static bool all_succeed(const LaunchedRank& self);
  static LaunchedRank of_spares(LaunchedRank self);
  static void end_spares(const LaunchedRank& self, int spares, bool succeeded);

 private:
  ExitProtocol(const JoinedRun& joined, bool goes_on);
  std::string decide_survivors(StoreRequests& requests, const RankExit& exit,
                               const std::string& word, const AfterLoss& after_loss) const;
  std::string story_of_the_lost(const std::string& exits, const RankExit& exit) const;
  std::string story_of_a_host(const std::string& ends, const RankExit& exit) const;
  std::string of_one_host(const RankExit& exit) const;

  std::shared_ptr<const Hosts> hosts_;
  std::shared_ptr<SharedRegion> shared_;
  StoreClientProcess listener_;
};

// Writes `text` to the file that TORCHELASTIC_ERROR_FILE names, if it is set: torchrun shows it in
// its summary.
void write_error_file(const std::string& text);

}  // namespace fsdp
