#include <memory/poison.h>

#include <atomic>
#include <cstring>
#include <limits>

namespace fsdp::poison {
namespace {

std::atomic<bool> is_on{false};
std::atomic<SpoilCallback> on_spoil_callback{nullptr};

}  // namespace

void enable(bool on) {
  is_on = on;
}

bool enabled() {
  return is_on.load(std::memory_order_relaxed);
}

void spoil(void* data, size_t bytes) {
  if (const SpoilCallback callback = on_spoil_callback) callback(data, bytes);
  if (enabled()) std::memset(data, 0xff, bytes);
}

void on_spoil(SpoilCallback callback) {
  on_spoil_callback = callback;
}

float padding() {
  return enabled() ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
}

}  // namespace fsdp::poison
