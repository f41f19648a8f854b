#pragma once

#include <config/train_config.h>
#include <nn/module.h>

#include <memory>

namespace fsdp {

// The model that `config` names, drawn from the default generator after manual_seed(config.seed).
// Its modules' spans are recorded, if events are.
std::shared_ptr<Module> build_model(const TrainConfig& config);

// Moves the buffers of `model` to `device`, in place. The parameters are moved by who shards or
// replicates them.
void move_buffers(const torch::nn::Module& model, c10::DeviceType device);

}  // namespace fsdp
