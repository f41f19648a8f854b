#pragma once

#include <train/trainer.h>

namespace fsdp {

// For --dry-run, when all options and files have been checked: prints what the run would train,
// the largest number of bytes that a rank would hold, and the bytes of its checkpoints. Trains
// nothing and writes nothing. Prints once, even if torchrun has started several processes.
// Throws what the run itself would throw: std::runtime_error if this machine has too little memory
// for the ranks, or the disk too little room for the checkpoints; std::invalid_argument if a
// pattern of names fits no parameter.
void dry_run(const TrainConfig& config, const FsdpImplementation& fsdp);

}  // namespace fsdp
