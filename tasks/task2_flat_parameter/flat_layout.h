#pragma once

#include <cstdint>
#include <vector>

namespace fsdp {

// The places of a unit's parameters in its flat tensor.
struct FlatLayout {
  std::vector<int64_t> offsets;  // [elements] one per parameter, in order, multiples of kAlignment
  int64_t padded_numel{};        // [elements] a multiple of kAlignment * world_size
};

// Lays out parameters of `numels` elements in order, each at the next multiple of kAlignment. Pads
// the end as little as possible.
FlatLayout flat_layout(const std::vector<int64_t>& numels, int world_size);

}  // namespace fsdp
