#include <flat_layout.h>
#include <optim/shard_layout.h>

namespace fsdp {

FlatLayout flat_layout(const std::vector<int64_t>& numels, int world_size) {
  FlatLayout layout;
  int64_t end = 0;
  for (const int64_t numel : numels) {
    layout.offsets.push_back(end);
    // In fp32 a parameter is as aligned as a tensor of its own, so kernels compute the same bits.
    end = round_up(end + numel, kAlignment);
  }
  // All shards have the same length, and every shard is aligned too.
  layout.padded_numel = round_up(end, kAlignment * world_size);
  return layout;
}

}  // namespace fsdp
