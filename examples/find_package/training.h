#pragma once

#include <fsdp/comm/communicator.h>
#include <fsdp/state_dict.h>
#include <torch/optim/adamw.h>

#include <memory>
#include <string>

#include "model.h"

// A training: a model, its optimizer, and the number of steps done. Model is
// fsdp::FullyShardedDataParallel<Net> or fsdp::DistributedDataParallel<Net>.
template <class Model>
class Training {
 public:
  // Collective, as step(), save() and hash() are. If `folder` has a checkpoint, the training
  // continues from it.
  Training(std::shared_ptr<fsdp::Communicator> comm, const std::string& folder);

  int64_t steps() const { return steps_; }  // number of steps done
  double step();                            // makes one step; returns this rank's loss
  double next_rate() const;                 // learning rate of the next step
  void save();                              // replaces the checkpoint in `folder`
  // Returns a hash of all that save() writes, but without the model's buffers if `buffers` is
  // false.
  size_t hash(bool buffers);

 private:
  fsdp::StateDict state();
  // Runs forward and backward of one of the `parts` microbatches of this rank. Returns the loss of
  // this microbatch divided by `parts`.
  double backward(const at::Tensor& rows, int parts);

  std::shared_ptr<fsdp::Communicator> comm_;
  std::string path_;  // path of the checkpoint file
  int64_t steps_{};
  Net net_;
  Model model_;
  torch::optim::AdamW optimizer_;
};
