#include <memory/live_bytes.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

namespace fsdp {

struct live_bytes::ScopedPeaks::Peaks {
  LiveBytes peak;                         // maximum of the live bytes since the last enter()
  std::array<LiveBytes, kPhases> phases;  // for each phase, highest live bytes since its reset()
  Phase phase{Phase::init};
  int64_t peak_total{};
  int64_t peak_to_take{};  // maximum of the total of live bytes since the last take_peak()
};

namespace {

// The one object of this type is never destroyed, because tensors with static lifetime are freed
// after main().
struct Counters : live_bytes::ScopedPeaks::Peaks {
  std::mutex mutex;
  LiveBytes now;
};

std::atomic<live_bytes::FreeCallback> free_callback;

Counters& counters() {
  static auto* counters = new Counters;
  return *counters;
}

void raise_to(LiveBytes& peak, const LiveBytes& now) {
  for (size_t i = 0; i < kMemoryClasses; ++i) {
    peak.by_class[i] = std::max(peak.by_class[i], now.by_class[i]);
  }
  peak.total = std::max(peak.total, now.total);
}

}  // namespace

namespace live_bytes {

LiveBytes now() {
  std::lock_guard lock(counters().mutex);
  return counters().now;
}

LiveBytes peak() {
  std::lock_guard lock(counters().mutex);
  return counters().peak;
}

LiveBytes peak(Phase phase) {
  std::lock_guard lock(counters().mutex);
  return counters().phases[static_cast<size_t>(phase)];
}

int64_t peak_total() {
  std::lock_guard lock(counters().mutex);
  return counters().peak_total;
}

int64_t take_peak() {
  std::lock_guard lock(counters().mutex);
  return std::exchange(counters().peak_to_take, counters().now.total);
}

void enter(Phase phase) {
  Counters& all = counters();
  std::lock_guard lock(all.mutex);
  all.phase = phase;
  all.peak = all.now;
  raise_to(all.phases[static_cast<size_t>(phase)], all.now);
}

void reset(Phase phase) {
  Counters& all = counters();
  std::lock_guard lock(all.mutex);
  all.phases[static_cast<size_t>(phase)] = all.phase == phase ? all.now : LiveBytes{};
}

ScopedPeaks::ScopedPeaks() {
  std::lock_guard lock(counters().mutex);
  before_ = std::make_unique<Peaks>(counters());
}

ScopedPeaks::~ScopedPeaks() {
  std::lock_guard lock(counters().mutex);
  static_cast<Peaks&>(counters()) = *before_;
}

void add(MemoryClass cls, int64_t bytes) {
  Counters& all = counters();
  std::lock_guard lock(all.mutex);
  auto i = static_cast<size_t>(cls);
  all.now.by_class[i] += bytes;
  all.now.total += bytes;
  if (bytes < 0) return;
  for (LiveBytes* peak : {&all.peak, &all.phases[static_cast<size_t>(all.phase)]}) {
    peak->by_class[i] = std::max(peak->by_class[i], all.now.by_class[i]);
    peak->total = std::max(peak->total, all.now.total);
  }
  all.peak_total = std::max(all.peak_total, all.now.total);
  all.peak_to_take = std::max(all.peak_to_take, all.now.total);
}

void remove(MemoryClass cls, int64_t bytes, const void* data) {
  add(cls, -bytes);
  if (const FreeCallback callback = free_callback.load(std::memory_order_relaxed)) {
    callback(data, bytes);
  }
}

void on_free(FreeCallback callback) {
  free_callback = callback;
}

}  // namespace live_bytes
}  // namespace fsdp
