#include <flat_layout.h>
#include <optim/shard_layout.h>

namespace fsdp {

FlatLayout flat_layout(const std::vector<int64_t>& numels, int world_size) {
  FlatLayout layout;
  for (const int64_t numel : numels) {
    layout.offsets.push_back(layout.padded_numel);
    layout.padded_numel += round_up(numel, kAlignment);
  }
  layout.padded_numel = round_up(layout.padded_numel, kAlignment * world_size);
  return layout;
}

}  // namespace fsdp
