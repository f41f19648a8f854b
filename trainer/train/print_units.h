#pragma once

#include <train/trainer.h>

#include <string>

namespace fsdp {

// Returns a table of the units, at most 100 characters wide, with sums in the last line. If a name
// is too long, shows only its end. Padding does not count in the numbers of parameters and of
// elements (numel). Shards are counted with the bytes of fp32, gathered units with the bytes of the
// parameters' param_dtype.
std::string units_table(const TrainConfig& config, const ShardLayout& layout);

// Prints the table of the units that --mode fsdp would make, whatever the run's mode is. Only rank
// 0 prints, if torchrun has started several processes. Takes no memory for parameters.
void print_units(const TrainConfig& config, const FsdpImplementation& fsdp);

}  // namespace fsdp
