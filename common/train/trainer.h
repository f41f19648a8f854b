#pragma once

#include <train/config.h>
#include <train/strategy.h>

namespace fsdp {

// Trains as `config` says, with the tasks of `stack`: forks the ranks, shows progress on stdout and
// writes config.json, if asked, when everything has succeeded. Returns the exit status of the
// process: 0, or 1 after one line on stderr that names the failing rank. To be called by a process
// that has run no torch operator.
int run_training(const TrainConfig& config, const Stack& stack);

}  // namespace fsdp
