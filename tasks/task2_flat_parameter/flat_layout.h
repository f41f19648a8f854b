#pragma once

#include <cstdint>
#include <vector>

namespace fsdp {

// The positions of the parameters of a unit in its flat tensor.
struct FlatLayout {
  std::vector<int64_t> offsets;  // [elements] one per parameter, in order, multiples of kAlignment
  int64_t padded_numel{};        // [elements] a multiple of kAlignment * world_size
};

// Places the parameters one after another, each at the next multiple of kAlignment. `numels` has
// the number of elements of each parameter. Pads the end as little as possible.
FlatLayout flat_layout(const std::vector<int64_t>& numels, int world_size);

}  // namespace fsdp
