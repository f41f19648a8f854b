#pragma once

#include <base/mapping.h>
#include <trace/event.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace fsdp {

// The events of forked ranks, in memory that they share with the process that forked them: it reads
// the events when the ranks have ended, however they ended. The last events of each rank are kept.
class EventLog {
 public:
  static constexpr size_t kKept = size_t{1} << 16;

  // Must be called before the fork. Memory is taken as events come. Throws std::runtime_error if
  // the mapping is refused.
  static std::shared_ptr<EventLog> create(int world_size, size_t kept = kKept);

  int world_size() const { return world_size_; }

  // Adds an event of `rank` and returns its number: 0, 1, 2, ... Each rank is one process, in which
  // one thread at a time may call this.
  uint64_t add(int rank, const Event& event);
  // Writes event `number` again when it has ended, if it is still kept. Its `end` is written last.
  void finish(int rank, uint64_t number, const Event& event);
  // The event as it was added; undefined values if it is no longer kept.
  Event at(int rank, uint64_t number) const;

  std::vector<Event> events(int rank) const;  // those kept, in the order in which they were added
  uint64_t added(int rank) const;             // how many were added
  uint64_t dropped(int rank) const;           // how many of them are no longer kept

 private:
  struct Page;
  EventLog(int world_size, size_t slots);
  Page& page(int rank) const;
  Event& slot(int rank, uint64_t number) const;

  int world_size_;
  size_t slots_;    // of a rank
  Mapping memory_;  // [world_size] pages
};

}  // namespace fsdp
