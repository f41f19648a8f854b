#include <flat_layout.h>
#include <optim/shard_layout.h>

#include <functional>
#include <iterator>
#include <numeric>

namespace fsdp {

FlatLayout flat_layout(const std::vector<int64_t>& numels, int world_size) {
  const auto aligned = [](int64_t numel) { return round_up(numel, kAlignment); };
  FlatLayout layout;
  std::transform_exclusive_scan(numels.begin(), numels.end(), std::back_inserter(layout.offsets),
                                int64_t{0}, std::plus<>(), aligned);
  const int64_t end =
      std::transform_reduce(numels.begin(), numels.end(), int64_t{0}, std::plus<>(), aligned);
  layout.padded_numel = round_up(end, kAlignment * world_size);
  return layout;
}

}  // namespace fsdp
