#pragma once

#include <config/train_config.h>
#include <nn/module.h>

#include <memory>

namespace fsdp {

// Builds the model that `config` names, with parameters drawn from the default generator after
// manual_seed(config.seed). If events are recorded, its modules record their spans.
std::shared_ptr<Module> build_model(const TrainConfig& config);

// Moves the buffers of `model` to `device`, in place. The parameters move when they are sharded or
// replicated.
void move_buffers(const torch::nn::Module& model, c10::DeviceType device);

}  // namespace fsdp
