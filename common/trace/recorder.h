#pragma once

#include <comm/clock.h>
#include <trace/event_log.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fsdp {

// Writes down what this process does as one rank. While there is one, current() points to it; where
// something happens that may be an event, that pointer is all that is looked at otherwise.
class Recorder {
 public:
  // One per process, made before the threads that record, and destroyed after them.
  Recorder(std::shared_ptr<EventLog> log, int rank, std::shared_ptr<Clock> clock);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  static Recorder* current() { return the_current; }  // null: nothing is recorded

  // A span from now to its end(), which takes the number that begin() returned. One that is never
  // ended shows where the rank was when it failed.
  uint64_t begin(Event event);
  void end(uint64_t number);
  // The end of a flight: now, or [ns] from when to when its bytes moved.
  void end_flight(uint64_t number, std::optional<std::pair<int64_t, int64_t>> moved);

  void instant(Event event);

  std::vector<Event> events() const { return log_->events(rank_); }  // recorded so far
  uint64_t count() const { return log_->added(rank_); }              // of them

  // When the block of memory at `storage` is freed, that is a free event of `unit`.
  void watch(const void* storage, const std::string& unit);

 private:
  static void freed(const void* data, int64_t bytes);
  void sample(Event& event) const;

  inline static Recorder* the_current = nullptr;
  std::shared_ptr<EventLog> log_;
  int rank_;
  std::shared_ptr<Clock> clock_;
  std::mutex mutex_;                             // of what follows and this rank's part of log_
  std::map<const void*, std::string> gathered_;  // by storage: the unit
};

// As Recorder's, where there may be none.
uint64_t begin_span(EventKind kind, std::string_view name, uint64_t sequence = 0);
void end_span(uint64_t number);

}  // namespace fsdp
