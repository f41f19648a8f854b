#pragma once

#include <comm/call.h>
#include <memory/live_bytes.h>

#include <cstdint>
#include <string>
#include <type_traits>

namespace fsdp {

enum class EventKind : uint8_t {
  // A training step of the trainer.
  step,
  // The forward of a module, with the waits inside it.
  forward,
  // The backward of a module, with the waits inside it.
  backward,
  // The clipping of the gradients and the optimizer's update.
  optimizer,
  // The moment at which a collective is issued.
  issue,
  // The time of a collective's transfer; if the transport does not know it, the time from the issue
  // of the collective to the end of its wait.
  flight,
  // The time for which the rank waits for a collective.
  wait,
  // The moment at which the storage of an unsharded unit is freed.
  free,
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
  int64_t begin{};  // [ns] when the event began
  // [ns] when the event ended; equal to `begin` for an issue or a free; 0: it has not ended.
  int64_t end{};
  // `live`: the live bytes at the end of the event. `peak`: the highest total of live bytes since
  // the previous event for which they were sampled. Both are 0 for EventKind::flight.
  LiveBytes live{};
  int64_t peak{};

  std::string name() const { return call.unit.str(); }  // name of the event's unit or module
  bool ended() const { return end != 0; }
  // Returns the length of the event [ns]. Requires that the event has ended.
  int64_t duration() const { return end - begin; }
  bool within(const Event& outer) const { return outer.begin <= begin && end <= outer.end; }
  bool of_collective() const;  // whether `kind` is EventKind::issue, flight or wait
  std::string text() const;    // what happened: for example "all_gather wait" or "forward"
};
static_assert(std::is_trivially_copyable_v<Event>);

}  // namespace fsdp
