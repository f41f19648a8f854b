#pragma once

#include <properties/random_training.h>

#include <string>

namespace fsdp {

// Trains the case on its ranks, and in one process that computes the batches of all ranks and
// recomputes no activations. Returns the first difference between the two in a loss, a norm, the
// parameters or the state after a step, or from the prediction in the bytes of a collective or the
// live bytes of a class; empty if there is none.
std::string first_difference(const RandomTraining& c);

}  // namespace fsdp
