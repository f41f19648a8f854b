#pragma once

#include <launch/hosts.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// The decision on how a run ends or continues after ranks have failed or were lost.
struct Decision {
  enum class Kind { fail, done, resume };
  Kind kind{};
  int64_t steps{};            // the run continues with the states after this number of steps
  std::vector<int> ranks{};   // ranks that continue, ascending, by their former numbers
  std::vector<int> spares{};  // surviving ranks, by their former numbers, that the run does not use

  std::string text() const;
  static Decision of(const std::string& text);
};

// A function that returns how many of `ranks` surviving ranks continue the run; the lowest ones
// continue. Returns 0 if the run cannot continue.
using AfterLoss = std::function<int(int ranks)>;

// After a failure, the time limit, 2 s, for the first answer of each process ("here").
inline constexpr std::chrono::seconds kToAnswer{2};

// Returns how long, after a failure, a process waits for its rank to end, if the rank waits for
// another rank for at most `limit`.
inline std::chrono::milliseconds time_to_end(std::chrono::milliseconds limit) {
  return limit + std::chrono::seconds(15);
}

// Returns the decision on the run; nothing while more lines of processes are awaited.
// - `said` has the lines that the process of each rank has written. The first line, "3 here", means
//   that rank 3 will end soon. The next one tells how rank 3 ended: "3 left 7 8", it has saved its
//   states after 7 and after 8 steps ("3 left 7 7": it has saved one state); "3 out", it has failed
//   without a saved state; "3 done", it has finished the run.
// - `since` is the time since the process of rank 0 began to decide, `limit` the time limit of each
//   wait for another rank.
// - If one rank is done, the decision is Kind::done, because a rank is done only after it has seen
//   that all other ranks are done.
// - A host survives if all its ranks have saved a state. It is lost if one of its ranks is "out",
//   or if its processes do not answer in time.
// - The run continues after the most steps that a surviving rank has made for certain, the first
//   number in its line. If a rank makes an update only when all ranks have all inputs of theirs,
//   every surviving rank has saved that state.
// - The decision is Kind::fail if no host is lost, if the host of rank 0 is lost, if a surviving
//   rank has not saved that state, or if `after_loss` returns 0.
std::optional<Decision> decision(const std::string& said, const Hosts& hosts,
                                 std::chrono::milliseconds since, std::chrono::milliseconds limit,
                                 const AfterLoss& after_loss);

}  // namespace fsdp
