#pragma once

#include <fsdp/comm/communicator.h>
#include <fsdp/state_dict.h>
#include <torch/optim/adamw.h>

#include <memory>
#include <string>

#include "model.h"

// What the ranks train: a model, its optimizer, and how far it has come. The model is an
// fsdp::FullyShardedDataParallel<Net> or an fsdp::DistributedDataParallel<Net>.
template <class Model>
class Training {
 public:
  // On all ranks. If `folder` has a checkpoint, goes on from it.
  Training(std::shared_ptr<fsdp::Communicator> comm, const std::string& folder);

  int64_t steps() const { return steps_; }  // done
  double step();                            // one more; returns this rank's loss
  double next_rate() const;                 // the learning rate of the step that comes next
  void save();                              // in place of the checkpoint that is there
  size_t hash(bool buffers);                // of all that it saves, with buffers or without

 private:
  fsdp::StateDict state();
  double backward(const at::Tensor& rows, int parts);  // of one of this rank's parts

  std::shared_ptr<fsdp::Communicator> comm_;
  std::string path_;  // of the checkpoint
  int64_t steps_{};
  Net net_;
  Model model_;
  torch::optim::AdamW optimizer_;
};
