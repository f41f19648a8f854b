#pragma once

#include <properties/random_training.h>

#include <string>

namespace fsdp {

// Trains the case on its ranks, and in one process that plays them and checkpoints nothing. Returns
// the first difference: in a loss, a norm, the parameters or the state after a step, the bytes of a
// collective or the live bytes of a class. Empty: there is none.
std::string first_difference(const RandomTraining& c);

}  // namespace fsdp
