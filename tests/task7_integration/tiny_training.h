#pragma once

#include <config/train_config.h>
#include <data/dataset.h>
#include <nn/models.h>
#include <optim/shard_layout.h>
#include <strategies/build_model.h>
#include <strategies/model_device.h>
#include <strategies/workload.h>
#include <testing/judge/cases.h>

// Tests of task 7 train gpt2-tiny, which has three layers. The number of rows of a batch is the
// first one from 24 on that the number of microbatches divides.
namespace fsdp {

inline TrainConfig tiny_config(int world_size) {
  TrainConfig config;
  config.ranks.mode = Mode::fsdp;
  config.ranks.world = world_size;
  config.model.name = "gpt2-tiny";
  config.data.kind = DataKind::published;
  config.optimizer.lr = 0.01;
  return config;
}

inline Batch tiny_batch(int64_t step, int parts) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(test_seed(static_cast<uint64_t>(step)));
  const at::Tensor tokens = at::randint(0, 61, {round_up(24, parts), 12}, generator, at::kLong);
  return {tokens.slice(1, 0, 11).contiguous(), tokens.slice(1, 1).contiguous()};
}

inline Workload tiny_workload(const TrainConfig& config) {
  const auto loss = [](Module& model, int microbatch, int microbatches, int64_t step) {
    const Batch batch = tiny_batch(step, microbatches).part(microbatch, microbatches);
    return language_model_loss(model, to_device_of(model, batch.inputs),
                               to_device_of(model, batch.targets));
  };
  return {[config] { return build_model(config); }, loss};
}

}  // namespace fsdp
