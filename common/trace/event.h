#pragma once

#include <comm/call.h>
#include <memory/live_bytes.h>

#include <cstdint>
#include <string>
#include <type_traits>

namespace fsdp {

enum class EventKind : uint8_t {
  step,       // a step of the trainer
  forward,    // forward of a module, with the waits inside it
  backward,   // backward of a module, with the waits inside it
  optimizer,  // clipping and update
  issue,      // issue of a collective; an instant
  flight,     // a collective: its transfer if known, else from its issue to the end of its wait
  wait,       // wait for a collective
  free,       // free of an unsharded unit's storage; an instant
};
inline constexpr size_t kEventKinds = 8;
const char* to_string(EventKind kind);

// Something that a rank did, and the live bytes when it ended. An Event is plain data, because it
// is stored in shared memory. Times are those of the communicator's clock, which is the same for
// all ranks of a machine.
struct Event {
  EventKind kind{};
  // The collective of an issue, a flight or a wait. Other events use only some fields: `unit` is
  // the module or the freed unit, `sequence` is the number of the step, `bytes` are those of the
  // freed storage.
  Call call;
  int64_t begin{};  // [ns]
  int64_t end{};    // [ns]; equal to `begin` for an instant; 0: no end
  // `live`: the live bytes at the end of the event. `peak`: the highest total of live bytes since
  // the previous event for which they were sampled. Both are 0 for EventKind::flight.
  LiveBytes live{};
  int64_t peak{};

  std::string name() const { return call.unit.str(); }  // name of the unit or module
  bool ended() const { return end != 0; }
  int64_t duration() const { return end - begin; }  // [ns]; valid only if the event has ended
  bool within(const Event& outer) const { return outer.begin <= begin && end <= outer.end; }
  bool of_collective() const;  // whether the kind is issue, flight or wait
  std::string text() const;    // for example "all_gather wait" or "forward"
};
static_assert(std::is_trivially_copyable_v<Event>);

}  // namespace fsdp
