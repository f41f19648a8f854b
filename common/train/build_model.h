#pragma once

#include <nn/module.h>
#include <train/config.h>

#include <memory>

namespace fsdp {

// The model that `config` names, drawn from the default generator after manual_seed(config.seed).
// Its modules' spans are recorded, if events are.
std::shared_ptr<Module> build_model(const TrainConfig& config);

}  // namespace fsdp
