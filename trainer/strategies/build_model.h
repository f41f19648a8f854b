#pragma once

#include <config/train_config.h>
#include <nn/module.h>

#include <memory>

namespace fsdp {

// Builds the model that `config` names, with parameters drawn from the default generator after
// manual_seed(config.training.seed). Adds the adapters of --lora, then freezes the parameters that
// --freeze names. If events are recorded, the modules record their spans.
std::shared_ptr<Module> build_model(const TrainConfig& config);

}  // namespace fsdp
