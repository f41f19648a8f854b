#pragma once

#include <config/train_config.h>
#include <data/batch.h>
#include <layout/shard_layout.h>
#include <testing/judge/cases.h>

// What the tests of the whole train: two layers, rows that every number of ranks divides.
namespace fsdp {

inline TrainConfig tiny_config(int world_size) {
  TrainConfig config;
  config.mode = "fsdp";
  config.world = world_size;
  config.model = "gpt2-tiny";
  config.published = true;
  config.optimizer.lr = 0.01;
  return config;
}

inline Batch tiny_batch(int64_t step, int world_size) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(test_seed(static_cast<uint64_t>(step)));
  const at::Tensor tokens =
      at::randint(0, 61, {round_up(24, world_size), 12}, generator, at::kLong);
  return {tokens.slice(1, 0, 11).contiguous(), tokens.slice(1, 1).contiguous()};
}

}  // namespace fsdp
