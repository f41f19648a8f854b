#pragma once

#include <properties/random_training.h>

#include <string>

namespace fsdp {

// Trains `c` on its ranks, and in one process that computes the batches of all ranks and recomputes
// no activations. Returns the first difference; empty if there is none:
// - between the two trainings, in a loss, a norm, the parameters or the state after a step;
// - from the prediction, in the bytes of a collective or in the live bytes of a class.
std::string first_difference(const RandomTraining& c);

}  // namespace fsdp
