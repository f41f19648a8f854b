#pragma once

#include <layout/shard_layout.h>
#include <testing/multi_rank.h>

#include <string>
#include <vector>

namespace fsdp {

// What each of `world_size` ranks should hold of these parameters, or of their gradients, in this
// order in one unit. Padding is zero.
inline std::vector<at::Tensor> expected_shards(const std::vector<at::Tensor>& parameters,
                                               int world_size) {
  const auto padded = [](const at::Tensor& tensor, int64_t multiple) {
    const int64_t numel = tensor.numel();
    return at::constant_pad_nd(tensor.flatten(), {0, round_up(numel, multiple) - numel});
  };
  std::vector<at::Tensor> aligned;
  for (const at::Tensor& parameter : parameters)
    aligned.push_back(padded(parameter, 16));
  return padded(at::cat(aligned), int64_t{16} * world_size).chunk(world_size);
}

// The same, observed as "NAME 0", "NAME 1", ...
inline void observe_expected_shards(TestRank& rank, const std::string& name,
                                    const std::vector<at::Tensor>& parameters, int world_size) {
  const auto shards = expected_shards(parameters, world_size);
  for (size_t r = 0; r < shards.size(); ++r)
    rank.observe(name + " " + std::to_string(r), shards[r]);
}

}  // namespace fsdp
