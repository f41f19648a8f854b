#pragma once

#include <trace/event.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace fsdp {

// The events of forked ranks, in memory that they share with the process that forked them: it reads
// them when the ranks have ended, however they ended. Of each rank the last ones are kept.
class EventLog {
 public:
  static constexpr size_t kKept = size_t{1} << 16;

  // Maps the memory, which is taken as events come; to be called before the fork. Throws
  // std::runtime_error when the mapping is refused.
  static std::shared_ptr<EventLog> create(int world_size, size_t kept = kKept);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  int world_size() const { return world_size_; }

  // Adds an event of `rank` and returns its number: 0, 1, 2, ... Each rank is one process, and one
  // thread of it at a time.
  uint64_t add(int rank, const Event& event);
  // Writes an event that has ended over itself, if it is still kept. Its `end` is written last.
  void finish(int rank, uint64_t number, const Event& event);
  // As added; undefined values when it is no longer kept.
  Event at(int rank, uint64_t number) const;

  std::vector<Event> events(int rank) const;  // those kept, in the order in which they were added
  uint64_t added(int rank) const;             // the number of all that were added
  uint64_t dropped(int rank) const;           // the number of older ones

 private:
  struct Page;
  EventLog() = default;
  Page& page(int rank) const;
  Event& slot(int rank, uint64_t number) const;

  int world_size_{};
  size_t slots_{};  // of a rank
  char* base_{};    // [world_size] pages
};

}  // namespace fsdp
