// The live-bytes counter of the train program as C functions, which a Python process calls through
// ctypes.
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>

#include <cstdint>

extern "C" {

void counter_install() {
  fsdp::counting_allocator::install();
}

int64_t counter_peak() {
  return fsdp::live_bytes::peak_total();
}
}
