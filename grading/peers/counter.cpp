// The live-bytes counter of the train program, for a Python process: ctypes finds these by name.
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>

#include <cstdint>

using fsdp::Phase;

extern "C" {

void counter_install() {
  fsdp::counting_allocator::install();
}

void counter_enter(int phase) {
  fsdp::live_bytes::enter(static_cast<Phase>(phase));
}

void counter_forget_phases() {
  for (size_t phase = 0; phase < fsdp::kPhases; ++phase) {
    fsdp::live_bytes::reset(static_cast<fsdp::Phase>(phase));
  }
}

const char* counter_phase_name(int phase) {
  return fsdp::to_string(static_cast<Phase>(phase));
}

int counter_phases() {
  return static_cast<int>(fsdp::kPhases);
}

int64_t counter_peak(int phase) {
  return fsdp::live_bytes::peak(static_cast<Phase>(phase)).total;
}

int64_t counter_peak_total() {
  return fsdp::live_bytes::peak_total();
}
}
