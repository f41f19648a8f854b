#include <trace/recorder.h>

#include <stdexcept>

namespace fsdp {

Recorder::Recorder(std::shared_ptr<EventLog> log, int rank, std::shared_ptr<Clock> clock)
    : log_(std::move(log)), rank_(rank), clock_(std::move(clock)) {
  if (current_ != nullptr) throw std::logic_error("a process has one Recorder at a time");
  current_ = this;
  live_bytes::on_free(&Recorder::freed);
  live_bytes::take_peak();
}

Recorder::~Recorder() {
  live_bytes::on_free(nullptr);
  current_ = nullptr;
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
    std::lock_guard lock(current_->mutex_);
    const auto found = current_->gathered_.find(data);
    if (found == current_->gathered_.end()) return;
    event.set_name(found->second);
    current_->gathered_.erase(found);
  }
  event.kind = EventKind::free;
  event.bytes = bytes;
  current_->instant(event);
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
