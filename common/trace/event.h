#pragma once

#include <comm/call.h>
#include <memory/live_bytes.h>

#include <cstdint>
#include <string>
#include <type_traits>

namespace fsdp {

enum class EventKind : uint8_t {
  step,       // of the trainer
  forward,    // of a module, with the waits inside it
  backward,   // likewise
  optimizer,  // clipping and update
  issue,      // of a collective; an instant
  flight,     // of a collective: from its issue to the end of its wait, or while its bytes moved
  wait,       // for a collective
  free,       // of a gathered unit's storage; an instant
};
inline constexpr size_t kEventKinds = 8;
const char* to_string(EventKind kind);

// What a rank did, and what it held then. Plain data: it lies in shared memory. Times are of the
// communicator's clock, which all ranks of a machine read alike.
struct Event {
  EventKind kind{};
  // The call of an issue, a flight or a wait. Others have a part of it: the unit is the module or
  // the freed unit, the sequence the number of the step, the bytes are those of the freed storage.
  Call call;
  int64_t begin{};   // [ns]
  int64_t end{};     // [ns]; begin for an instant; 0: it did not end
  LiveBytes live{};  // [bytes] at the end; nothing for a flight
  int64_t peak{};    // [bytes] highest total since the event that ended before it

  std::string name() const { return call.unit.str(); }  // of the unit or module
  bool ended() const { return end != 0; }
  int64_t duration() const { return end - begin; }  // [ns] of one that ended
  bool within(const Event& outer) const { return outer.begin <= begin && end <= outer.end; }
  bool of_collective() const;  // an issue, a flight or a wait
  std::string text() const;    // "all_gather wait", "forward"
};
static_assert(std::is_trivially_copyable_v<Event>);

}  // namespace fsdp
