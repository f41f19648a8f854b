#pragma once

#include <comm/shared_region.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// What a rank is told by the process that started it.
struct RankContext {
  int rank{};
  int world_size{1};
  std::shared_ptr<SharedRegion> shared;
};

struct RankExit {
  int rank{};
  int code{};             // the rank's exit status, if it ended by itself
  int signal{};           // the signal that ended it, else 0
  bool stopped{};         // by launch(), because another rank had failed
  std::string message;    // what() of the exception that ended it, else empty
  std::string last_call;  // "#3 all_gather layers.1", the last collective it called; may be empty

  bool ok() const { return code == 0 && signal == 0; }
  // "rank 2 was killed by signal 9 (Killed) after collective #3 all_gather layers.1"
  std::string text() const;
};

struct LaunchResult {
  std::vector<RankExit> ranks;  // by rank
  int first_failure{-1};        // the rank whose failure ended the others, -1 if all succeeded

  bool ok() const { return first_failure < 0; }
};

// Forks `world_size` ranks, runs `body` in each and waits for them. A rank fails by a non-zero
// return value, an exception or a signal; the first failure ends the rest at once. Interrupting or
// killing the caller ends every rank. To be called before torch has started a thread, and by a
// process that runs no torch operator: a child would inherit locks that nobody holds any more. Each
// rank leads a process group: what it forks ends with it. `on_interrupt` runs when a signal is
// about to end the caller, after the ranks have ended.
LaunchResult launch(int world_size, const std::function<int(const RankContext&)>& body,
                    const std::function<void()>& on_interrupt = nullptr);

// What a program does with its ranks: launch(); or, in a process that torchrun has started as one
// of `world_size` ranks, joins the others and does for this rank alone what launch() does for all.
// Returns the exit status for main(): 0; 1 when a rank failed, which one of the processes tells on
// stderr, after the name of the program (by default the one it was called by); 2 when the
// environment makes no sense. `at_end` is called when the ranks of this process have ended, also
// when a signal is about to end the process too: with what went wrong, or nothing. When it returns
// false, the exit status is not 0.
using AtEnd = std::function<bool(const std::string& failure)>;
int start(int world_size, const std::function<int(const RankContext&)>& body,
          const std::string& program = "", const AtEnd& at_end = nullptr);

}  // namespace fsdp
