#pragma once

#include <config/train_config.h>
#include <data/dataset.h>
#include <nn/module.h>

#include <functional>
#include <memory>

namespace fsdp {

// What is trained: any model, and its loss. Every strategy plays it. Both functions give the same
// values on every rank and in every mode.
struct Workload {
  // Makes the model. It draws its values from a seed, so each call makes the same.
  std::function<std::shared_ptr<Module>()> build;
  // Calls `model` on its device, which may be meta (planning/rehearsal.h). Returns the loss, [], of
  // one of the `parts` equal parts of the batch of this step.
  std::function<at::Tensor(Module& model, int part, int parts, int64_t step)> loss;
};

// `tensor`, which is on the CPU, on the device of the model's first parameter. On the meta device
// it keeps `tensor` alive, where its bytes are counted.
at::Tensor to_device_of(const Module& model, const at::Tensor& tensor);

// The model that `config` names, on batches of the dataset. Keeps the batch of one step.
Workload language_modeling(const TrainConfig& config, std::shared_ptr<const Dataset> dataset);

}  // namespace fsdp
