#pragma once

#include <optim/shard_layout.h>
#include <testing/expectations.h>
#include <testing/test_rank.h>

#include <string>
#include <vector>

namespace fsdp {

// `parameters`: the whole parameters (or whole gradients) of a unit, in the unit's order. Returns,
// for each rank, the shard that the rank should own: [world_size] tensors of
// [padded_numel / world_size]. Padding is zero.
inline std::vector<at::Tensor> expected_shards(const std::vector<at::Tensor>& parameters,
                                               int world_size) {
  const auto padded = [](const at::Tensor& tensor, int64_t multiple) {
    const int64_t numel = tensor.numel();
    return at::constant_pad_nd(tensor.flatten(), {0, round_up(numel, multiple) - numel});
  };
  std::vector<at::Tensor> aligned;
  for (const at::Tensor& parameter : parameters)
    aligned.push_back(padded(parameter, kAlignment));
  return padded(at::cat(aligned), kAlignment * world_size).chunk(world_size);
}

// Makes `rank` observe the tensors of expected_shards() as "NAME 0", "NAME 1", ...
inline void observe_expected_shards(TestRank& rank, const std::string& name,
                                    const std::vector<at::Tensor>& parameters, int world_size) {
  const auto shards = expected_shards(parameters, world_size);
  for (size_t r = 0; r < shards.size(); ++r)
    rank.observe(name + " " + std::to_string(r), shards[r]);
}

// Compares what each rank of `run` observed as `name` with the shard of this rank that rank 0 of
// `oracle` observed with observe_expected_shards().
inline void expect_shards(const RankRun& run, const RankRun& oracle, const std::string& name,
                          const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const auto shard = [&](int r) { return oracle.at(0, name + " " + std::to_string(r)); };
  expect_on_each_rank(run, name, shard, file, line);
}

}  // namespace fsdp
