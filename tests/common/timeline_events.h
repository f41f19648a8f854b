#pragma once

#include <trace/timeline.h>

// Events of ranks for tests of timelines. An event has `begin` and `end` in [ns] since kStart. If
// end is 0, the event has not ended.
namespace fsdp {

inline constexpr int64_t kStart = 5'000'000'000;  // [ns]

inline Event event(EventKind kind, const std::string& name, int64_t begin, int64_t end) {
  Event event;
  event.kind = kind;
  event.call.unit = UnitName(name);
  event.begin = kStart + begin;
  event.end = end == 0 ? 0 : kStart + end;
  if (kind == EventKind::issue || kind == EventKind::flight || kind == EventKind::wait) {
    event.call.operation = Operation::all_gather;
    event.call.sequence = 12;
    event.call.bytes = 1'500'000;
  }
  if (end != 0 && kind != EventKind::flight) {
    event.live.total = 3'000'000;
    event.live.by_class[static_cast<size_t>(MemoryClass::gathered)] = 192;
    event.peak = 4'000'000;
  }
  return event;
}

// Returns a timeline of two ranks in which rank 1's wait has not ended.
inline Timeline two_ranks() {
  return {"fsdp of small, 2 ranks",
          "rank 0 was killed",
          {{event(EventKind::forward, "layers.3", 0, 2'000'000),
            event(EventKind::issue, "layers.3", 1000, 1000),
            event(EventKind::flight, "layers.3", 1000, 900'000)},
           {event(EventKind::wait, "</script>", 200, 0)}}};
}

}  // namespace fsdp
