#include <trace/recorder.h>

#include <stdexcept>
#include <tuple>

namespace fsdp {

Recorder::Recorder(std::shared_ptr<EventLog> log, int rank, std::shared_ptr<Clock> clock)
    : log_(std::move(log)), rank_(rank), clock_(std::move(clock)) {
  if (the_current != nullptr)
    throw std::logic_error("Recorder: this process has a Recorder already; destroy it first");
  the_current = this;
  live_bytes::on_free(&Recorder::freed);
  live_bytes::take_peak();
}

Recorder::~Recorder() {
  live_bytes::on_free(nullptr);
  the_current = nullptr;
}

uint64_t Recorder::begin(EventKind kind, const Call& call) {
  const std::lock_guard lock(mutex_);
  Event event{kind, call};
  event.begin = clock_->now();
  return log_->add(rank_, event);
}

void Recorder::end(uint64_t number) {
  const std::lock_guard lock(mutex_);
  Event event = log_->at(rank_, number);
  sample(event);
  event.end = clock_->now();
  log_->finish(rank_, number, event);
}

void Recorder::instant(EventKind kind, const Call& call) {
  const std::lock_guard lock(mutex_);
  Event event{kind, call};
  sample(event);
  event.begin = event.end = clock_->now();
  log_->add(rank_, event);
}

void Recorder::sample(Event& event) {
  event.live = live_bytes::now();
  event.peak = live_bytes::take_peak();
}

void Recorder::issued(const Call& call, const at::Tensor& output) {
  instant(EventKind::issue, call);
  const uint64_t flight = begin(EventKind::flight, call);
  const std::lock_guard lock(mutex_);
  flights_[{call.communicator, call.level, call.sequence}] = flight;
  if (call.operation == Operation::all_gather && !call.unit.is_label()) {
    gathered_[output.storage().data()] = call.unit;
  }
}

void Recorder::waits(const Call& call) {
  wait_ = begin(EventKind::wait, call);
}

void Recorder::waited(const Call& call, std::optional<std::pair<int64_t, int64_t>> moved) {
  end_flight(call, moved);
  end(wait_);
}

void Recorder::end_flight(const Call& call, std::optional<std::pair<int64_t, int64_t>> moved) {
  const std::lock_guard lock(mutex_);
  const auto flight = flights_.extract({call.communicator, call.level, call.sequence});
  if (flight.empty()) return;  // the call was issued before this Recorder was made
  Event event = log_->at(rank_, flight.mapped());
  std::tie(event.begin, event.end) = moved.value_or(std::pair(event.begin, clock_->now()));
  log_->finish(rank_, flight.mapped(), event);
}

void Recorder::freed(const void* data, int64_t bytes) {
  Call call;
  {
    const std::lock_guard lock(the_current->mutex_);
    const auto found = the_current->gathered_.extract(data);
    if (found.empty()) return;
    call.unit = found.mapped();
  }
  call.bytes = bytes;
  the_current->instant(EventKind::free, call);
}

uint64_t begin_span(EventKind kind, std::string_view name, uint64_t sequence) {
  if (Recorder::current() == nullptr) return 0;
  Call call;
  call.unit = UnitName(name);
  call.sequence = sequence;
  return Recorder::current()->begin(kind, call);
}

void end_span(uint64_t number) {
  if (Recorder::current() != nullptr) Recorder::current()->end(number);
}

}  // namespace fsdp
