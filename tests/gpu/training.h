#pragma once

#include <base/whole_file.h>
#include <reproduce/train_runs.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <train/trainer.h>
#include <trainer/mode_of.h>

#include <common/temporary_folder.h>

#include "gpus.h"

namespace fsdp {

// Returns the options of the published run of `model`, on CUDA.
inline TrainConfig published(const std::string& mode, int world_size, const std::string& model,
                             int64_t steps, int64_t batch, double lr) {
  TrainConfig config;
  config.ranks.mode = mode_of(mode);
  config.ranks.world = world_size;
  config.model.name = model;
  config.data.kind = DataKind::published;
  config.training.steps = steps;
  config.training.batch = batch;
  config.training.seq = 127;
  config.optimizer.lr = lr;
  config.ranks.comm.device = c10::kCUDA;
  return config;
}

// Trains and returns the result that --json writes. Throws std::runtime_error if training fails.
inline TrainResult train(TrainConfig config) {
  const TemporaryFolder folder;
  config.reports.json = folder.path() + "/json";
  if (run_training(config, {make_fsdp_strategy, shard_layout}) != 0)
    throw std::runtime_error(to_string(config.ranks.mode) +
                             std::string(" did not train; see above"));
  return parse_train_result(content_of(config.reports.json));
}

}  // namespace fsdp
