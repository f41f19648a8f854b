#pragma once

#include <comm/rank_status.h>

#include <string>
#include <vector>

namespace fsdp {

// How one rank has ended. launch() returns a RankExit for each rank.
struct RankExit {
  int rank{};
  int exit_code{};  // the rank's exit status; 0 if a signal ended the rank
  int signal{};     // the signal that ended the rank, else 0
  // Says whether launch() or start() killed the rank because another rank had failed.
  bool ended_by_launcher{};
  // If the rank was stopped when it was killed, the signal that had stopped it, such as SIGSTOP;
  // else 0.
  int stopped_by{};
  std::string message;  // what() of the exception that ended the rank, or another reason; "": none
  // The last collective of the rank in any group, "#3 all_gather layers.1"; "" if it made none.
  std::string last_call;

  bool ok() const { return exit_code == 0 && signal == 0; }
  RankStatus status() const;
  // Returns the end of the rank for messages: "rank 2 was killed by signal 9 (Killed) after
  // collective #3 all_gather layers.2".
  std::string text() const;
};

struct LaunchResult {
  // How each rank has ended, by rank. A rank that another process has forked has a default
  // RankExit.
  std::vector<RankExit> ranks;
  // The rank whose failure ended the other ranks; -1 if all ranks succeeded. If a rank of another
  // process failed, this is the rank that this process then ended.
  int first_failure{-1};

  bool ok() const { return first_failure < 0; }
};

}  // namespace fsdp
