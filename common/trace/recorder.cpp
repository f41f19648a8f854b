#include <trace/recorder.h>

#include <stdexcept>

namespace fsdp {

Recorder::Recorder(std::shared_ptr<EventLog> log, int rank, std::shared_ptr<Clock> clock)
    : log_(std::move(log)), rank_(rank), clock_(std::move(clock)) {
  if (the_current != nullptr) throw std::logic_error("a process has one Recorder at a time");
  the_current = this;
  live_bytes::on_free(&Recorder::freed);
  live_bytes::take_peak();
}

Recorder::~Recorder() {
  live_bytes::on_free(nullptr);
  the_current = nullptr;
}

void Recorder::sample(Event& event) const {
  event.live = live_bytes::now();
  event.peak = live_bytes::take_peak();
}

uint64_t Recorder::begin(Event event) {
  std::lock_guard lock(mutex_);
  event.begin = clock_->now();
  return log_->add(rank_, event);
}

void Recorder::end(uint64_t number) {
  std::lock_guard lock(mutex_);
  Event event = log_->at(rank_, number);
  sample(event);
  event.end = clock_->now();
  log_->finish(rank_, number, event);
}

void Recorder::end_flight(uint64_t number, std::optional<std::pair<int64_t, int64_t>> moved) {
  std::lock_guard lock(mutex_);
  Event event = log_->at(rank_, number);
  const auto [begin, end] = moved.value_or(std::pair(event.begin, clock_->now()));
  event.begin = begin;
  event.end = end;
  log_->finish(rank_, number, event);
}

void Recorder::instant(Event event) {
  std::lock_guard lock(mutex_);
  sample(event);
  event.begin = event.end = clock_->now();
  log_->add(rank_, event);
}

void Recorder::watch(const void* storage, const std::string& unit) {
  std::lock_guard lock(mutex_);
  gathered_[storage] = unit;
}

void Recorder::freed(const void* data, int64_t bytes) {
  Event event;
  {
    std::lock_guard lock(the_current->mutex_);
    const auto found = the_current->gathered_.find(data);
    if (found == the_current->gathered_.end()) return;
    event.set_name(found->second);
    the_current->gathered_.erase(found);
  }
  event.kind = EventKind::free;
  event.bytes = bytes;
  the_current->instant(event);
}

uint64_t begin_span(EventKind kind, std::string_view name, uint64_t sequence) {
  if (Recorder::current() == nullptr) return 0;
  Event event;
  event.kind = kind;
  event.set_name(name);
  event.sequence = sequence;
  return Recorder::current()->begin(event);
}

void end_span(uint64_t number) {
  if (Recorder::current() != nullptr) Recorder::current()->end(number);
}

}  // namespace fsdp
