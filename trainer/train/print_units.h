#pragma once

#include <train/trainer.h>

#include <string>

namespace fsdp {

// Returns a table of the units, at most 100 characters wide, with sums in the last line. Shows only
// the end of a name that is too long. The numbers of parameters and of elements (numel) are without
// padding. The bytes of shards are those of fp32; the gathered bytes are those of the parameters'
// param_dtype.
std::string units_table(const TrainConfig& config, const ShardLayout& layout);

// Prints the table of the units that fsdp would make, in any mode. Prints it once, even if torchrun
// has started several processes. Takes no memory for parameters.
void print_units(const TrainConfig& config, const FsdpImplementation& fsdp);

}  // namespace fsdp
