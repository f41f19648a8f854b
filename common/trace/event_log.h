#pragma once

#include <base/mapping.h>
#include <trace/event.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace fsdp {

// The events of forked ranks, in memory that they share with the process that forked them. That
// process reads the events after the ranks have ended, even if the ranks were killed. Only the last
// events of each rank are kept.
class EventLog {
 public:
  static constexpr size_t kKept = size_t{1} << 16;

  // Call it before the fork. `kept`: the number of events to keep for each rank. Memory is
  // allocated as events are added. Throws std::runtime_error if the memory cannot be mapped.
  static std::shared_ptr<EventLog> create(int world_size, size_t kept = kKept);

  int world_size() const { return world_size_; }

  // Adds an event of `rank` and returns its number: 0, 1, 2, ... Each rank is one process, in which
  // only one thread at a time may call add().
  uint64_t add(int rank, const Event& event);
  // Replaces event `number` of `rank` by `event`, which has ended; does nothing if event `number`
  // is no longer kept. Writes the member Event::end last, so that the event counts as not ended if
  // the rank is killed meanwhile.
  void finish(int rank, uint64_t number, const Event& event);
  // Returns event `number` of `rank` as it was last written. If the event is no longer kept, the
  // returned values mean nothing.
  Event at(int rank, uint64_t number) const;

  std::vector<Event> events(int rank) const;  // the kept events of `rank`, in the order of add()
  uint64_t added(int rank) const;             // number of all events that `rank` has added
  uint64_t dropped(int rank) const;           // number of events of `rank` that are no longer kept

 private:
  struct Page;
  EventLog(int world_size, size_t slots);
  Page& page(int rank) const;
  Event& slot(int rank, uint64_t number) const;

  int world_size_;
  size_t slots_;    // for how many events there is room, for each rank
  Mapping memory_;  // shared memory with a Page for each rank
};

}  // namespace fsdp
