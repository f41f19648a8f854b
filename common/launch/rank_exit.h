#pragma once

#include <comm/rank_status.h>

#include <string>
#include <vector>

namespace fsdp {

// The end of one rank, as launch() reports it.
struct RankExit {
  int rank{};
  int exit_code{};           // the rank's exit status, if it ended by itself
  int signal{};              // the signal that ended it, else 0
  bool ended_by_launcher{};  // killed by launch() or start(), because another rank had failed
  int stopped_by{};       // the signal (SIGSTOP) by which it was stopped when it was killed, else 0
  std::string message;    // what() of the exception that ended it, or another reason, else empty
  std::string last_call;  // "#3 all_gather layers.1", its last collective in any group; empty: none

  bool ok() const { return exit_code == 0 && signal == 0; }
  RankStatus status() const;
  // Returns "rank 2 was killed by signal 9 (Killed) after collective #3 all_gather layers.2".
  std::string text() const;
};

struct LaunchResult {
  std::vector<RankExit> ranks;  // by rank
  // The rank whose failure ended the others; -1 if all succeeded. If a rank of another process has
  // failed, it is the rank that this process has ended.
  int first_failure{-1};

  bool ok() const { return first_failure < 0; }
};

}  // namespace fsdp
