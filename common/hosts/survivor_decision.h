#pragma once

#include <launch/hosts.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// What becomes of a run whose ranks have lost others.
struct Decision {
  enum class Kind { fail, done, resume };
  Kind kind{};
  int64_t steps{};            // it goes on with the states after so many
  std::vector<int> ranks{};   // that go on, ascending, numbered as before
  std::vector<int> spares{};  // that have survived and are too many

  std::string text() const;
  static Decision of(const std::string& text);
};

// How many of so many ranks, the first ones, can go on; 0: none.
using AfterLoss = std::function<int(int ranks)>;

// In which a process says that it is here.
inline constexpr std::chrono::seconds kToAnswer{2};

// How long a process waits for its rank, which waits for another one at most `limit`, to end.
inline std::chrono::milliseconds time_to_end(std::chrono::milliseconds limit) {
  return limit + std::chrono::seconds(15);
}

// The decision, once it can be given, `since` a rank has failed. Each process writes, for its rank,
// a line: "3 here", it will come to an end; then "3 left 7 8", it has left the states after 7 and
// after 8 steps ("3 left 7 7": one); "3 out", it has failed; or "3 done". A host goes on if all its
// ranks have left a state, and is lost if one has failed, or if its processes say nothing. The run
// goes on after the most steps that a rank has made: if every rank makes an update only when all
// have all that it needs, all have left that state.
std::optional<Decision> decision(const std::string& said, const Hosts& hosts,
                                 std::chrono::milliseconds since, std::chrono::milliseconds limit,
                                 const AfterLoss& after_loss);

}  // namespace fsdp
