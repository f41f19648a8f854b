#pragma once

#include <train/trainer.h>

namespace fsdp {

// Runs --dry-run; call it when all options and files have been checked. Prints what the run would
// train, the largest number of bytes of tensors that a rank would hold, and what Muon would update.
// Trains nothing and writes no file. Only rank 0 prints, if torchrun has started several processes.
// Throws what the run itself would throw:
// - std::runtime_error if this machine has too little memory for the ranks, or if the disk has too
//   little room for the checkpoints;
// - std::invalid_argument if a pattern of names matches no parameter.
void dry_run(const TrainConfig& config, const FsdpImplementation& fsdp);

}  // namespace fsdp
