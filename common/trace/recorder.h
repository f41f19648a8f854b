#pragma once

#include <comm/call_observer.h>
#include <comm/clock.h>
#include <trace/event_log.h>

#include <map>
#include <mutex>
#include <string_view>
#include <tuple>
#include <utility>

namespace fsdp {

// Records what this process does as one rank: its collectives; the frees of unsharded units'
// storage; and the spans that other code reports with begin_span(). current() points to the
// Recorder while it exists. Code that reports spans first tests this pointer, so that reporting
// costs little if nothing is recorded.
class Recorder final : public CallObserver {
 public:
  // A process may have one Recorder at a time; a second one throws std::logic_error. Make the
  // Recorder before the threads that record, and destroy it after them.
  Recorder(std::shared_ptr<EventLog> log, int rank, std::shared_ptr<Clock> clock);
  ~Recorder();

  // Returns the Recorder of this process, or null if it has none, so that nothing is recorded.
  static Recorder* current() { return the_current; }

  // begin() adds an event that begins now, and returns its number; end(number) ends the event now.
  // An event that never ends shows what the rank was doing when it failed.
  uint64_t begin(EventKind kind, const Call& call);
  void end(uint64_t number);

  // Returns the events recorded so far that the log still keeps.
  std::vector<Event> events() const { return log_->events(rank_); }
  // Returns the number of events recorded so far, including those that the log no longer keeps.
  uint64_t count() const { return log_->added(rank_); }

  void issued(const Call& call, const at::Tensor& output) override;
  void waits(const Call& call) override;
  void waited(const Call& call, std::optional<std::pair<int64_t, int64_t>> moved) override;

 private:
  static void freed(const void* data, int64_t bytes);
  static void sample(Event& event);
  void instant(EventKind kind, const Call& call);
  void end_flight(const Call& call, std::optional<std::pair<int64_t, int64_t>> moved);

  inline static Recorder* the_current = nullptr;
  std::shared_ptr<EventLog> log_;
  int rank_;
  std::shared_ptr<Clock> clock_;
  std::mutex mutex_;  // protects gathered_, flights_, and the events of this rank in log_
  // Data pointer of a storage that an all-gather has filled -> unit of this storage.
  std::map<const void*, UnitName> gathered_;
  // (number of the Communicator, Level of the group, sequence) of a call that was not waited for ->
  // number of the call's event of EventKind::flight.
  std::map<std::tuple<uint8_t, Level, uint64_t>, uint64_t> flights_;
  uint64_t wait_{};  // number of the event of the wait (EventKind::wait) that began last
};

// begin_span() and end_span() record a span as Recorder::begin() and end() do. They do nothing if
// this process has no Recorder.
uint64_t begin_span(EventKind kind, std::string_view name, uint64_t sequence = 0);
void end_span(uint64_t number);

}  // namespace fsdp
