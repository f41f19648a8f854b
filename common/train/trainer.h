#pragma once

#include <config/train_config.h>
#include <train/strategy.h>

namespace fsdp {

// Trains as `config` says, with the tasks of `stack`: starts the ranks (or joins them, as start()
// does), shows progress on stdout and writes config.json, if asked, when everything has succeeded.
// Returns the exit status that start() gives. To be called by a process that has run no torch
// operator.
int run_training(const TrainConfig& config, const Stack& stack);

}  // namespace fsdp
