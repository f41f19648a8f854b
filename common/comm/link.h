#pragma once

#include <comm/call.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace fsdp {

// A simulated network in which the ranks form a ring, with the alpha-beta model (Thakur,
// Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", 2005).
struct Link {
  std::chrono::nanoseconds latency{};  // time of one hop from a rank to the next
  double bytes_per_second{};           // bytes that a rank can receive in a second

  // Returns the time [ns] of a call in which each of `world_size` ranks receives `bytes`: W - 1
  // hops, or twice as many for an all-reduce, and the transfer of the bytes. 0 for one rank, which
  // receives nothing.
  int64_t time(Operation operation, int64_t bytes, int world_size) const;
};

// Parses "200us,1GB/s": a latency in ns, us, ms or s, at most 60s, and a bandwidth in kB/s, MB/s or
// GB/s (powers of ten), at least 1kB/s. Throws std::invalid_argument, which says what is wrong.
Link parse_link(const std::string& text);

}  // namespace fsdp
