#pragma once

#include <config/train_config.h>
#include <nn/module.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// Builds the model that `config` names, with parameters drawn from the default generator after
// manual_seed(config.training.seed). Adds the adapters of --lora, then freezes the parameters that
// --freeze names. If a Recorder exists, it records when the forward and the backward of the modules
// begin and end.
std::shared_ptr<Module> build_model(const TrainConfig& config);

// Throws std::invalid_argument if `pattern`, the argument of --freeze, matches none or all of the
// model's parameters. The text names the option and, if no parameter matches, some of the
// parameters.
void check_freeze(const std::string& pattern, const std::vector<std::string>& parameters);
// Throws std::invalid_argument if `pattern`, the argument of --lora-target, matches no layer that
// can have an adapter, or if it matches the head and the head is tied to the embedding
// (`tied_head`). The text names the option and some of the layers, or the head.
void check_lora_target(const std::string& pattern, const std::vector<std::string>& layers,
                       bool tied_head);

}  // namespace fsdp
