#pragma once

#include <train/trainer.h>

#include <string>

namespace fsdp {

// A table of the units in 100 columns, with sums in the last line. Of a name that is too long it
// shows the end. The numbers of parameters and elements are without padding. Shards are fp32; what
// is gathered is of config.precision.policy_of() each parameter.
std::string units_table(const TrainConfig& config, const ShardLayout& layout);

// Prints the table of the units that fsdp would make, once: also if torchrun has started many
// processes. The mode does not matter. Takes no memory for parameters.
void print_units(const TrainConfig& config, const FsdpImplementation& fsdp);

}  // namespace fsdp
