#include <flat_layout.h>
#include <optim/shard_layout.h>

#include <functional>
#include <numeric>

namespace fsdp {

FlatLayout flat_layout(const std::vector<int64_t>& numels, int world_size) {
  const auto aligned = [](int64_t numel) { return round_up(numel, kAlignment); };
  FlatLayout layout{std::vector<int64_t>(numels.size()), 0};
  std::transform_exclusive_scan(numels.begin(), numels.end(), layout.offsets.begin(), int64_t{0},
                                std::plus<>(), aligned);
  const int64_t end = numels.empty() ? 0 : layout.offsets.back() + numels.back();
  layout.padded_numel = round_up(end, kAlignment * world_size);
  return layout;
}

}  // namespace fsdp
