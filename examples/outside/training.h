#pragma once

#include <comm/communicator.h>
#include <fully_shard.h>
#include <sharded_optimizer.h>
#include <state/checkpoint.h>

#include <memory>
#include <string>

#include "model.h"

// What the ranks train: a sharded model, its optimizer, and how far it has come.
class Training {
 public:
  // On all ranks. If `folder` has checkpoints, goes on from the latest one.
  Training(std::shared_ptr<fsdp::Communicator> comm, std::string folder);

  int64_t steps() const { return steps_; }  // done
  double step();                            // one more; returns this rank's loss
  double next_rate() const;                 // the learning rate of the step that comes next
  void save();                              // a checkpoint in `folder`
  std::string sha256();                     // of all that it saves, on rank 0

 private:
  fsdp::ModelState state();
  void set_rate(double rate);

  std::shared_ptr<fsdp::Communicator> comm_;
  std::string folder_;
  int64_t steps_{};
  Net net_;
  std::shared_ptr<fsdp::FullySharded> sharded_;
  std::unique_ptr<fsdp::ShardedOptimizer> optimizer_;
};
