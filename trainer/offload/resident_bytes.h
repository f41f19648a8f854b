#pragma once

#include <optim/shard_layout.h>

#include <algorithm>
#include <cstdint>

namespace fsdp {

// Number of bytes of a page of the file with the optimizer state.
inline constexpr int64_t kPage = 4096;

// Returns how many of `bytes` bytes stay in memory if `wanted` bytes are wanted there: `wanted`,
// rounded up to whole pages, but at most `bytes`.
inline int64_t resident_bytes(int64_t bytes, int64_t wanted) {
  return std::min(bytes, round_up(wanted, kPage));
}

}  // namespace fsdp
