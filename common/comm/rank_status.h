#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

namespace fsdp {

// The state of a rank as the process that has forked it last saw it. One word without padding, so
// that it is loaded, stored and compared atomically (clang needs the alignment to do so without
// libatomic).
struct alignas(8) RankStatus {
  enum class Kind : int32_t { running, stopped, ended, killed, vanished, silent };
  Kind kind{};
  int32_t number{};  // the signal that stopped or killed the rank, or its exit status

  bool runs() const { return kind == Kind::running; }
  bool gone() const { return kind >= Kind::ended; }
  // Returns "was stopped by signal 19 (Stopped (signal))", "has ended with status 0", "was killed
  // by signal 9 (Killed)", "has vanished (its process is gone)" or "does not answer (its host is
  // down, or cut off)"; empty if the rank is running.
  std::string text() const;
};
static_assert(std::has_unique_object_representations_v<RankStatus>);

// Returns the number and the name of a signal for messages: "signal 9 (Killed)".
std::string signal_text(int signal);

}  // namespace fsdp
