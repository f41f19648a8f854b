#pragma once

#include <base/torch.h>

#include <cstdint>
#include <string>

namespace fsdp {

// Neighbouring elements of one parameter and their optimizer state, as views: writing to them
// changes the training state. Elements are indices into the parameter, in row-major order. So a
// range does not depend on units, shards, pieces or ranks, and padding is in no range.
struct StateRange {
  std::string parameter;   // its first name
  int64_t begin{}, end{};  // [elements] begin < end
  at::Tensor value;        // [end - begin]
  // [end - begin], or undefined: both for SGD and frozen parameters, exp_avg_sq for Muon
  at::Tensor exp_avg, exp_avg_sq;
  at::Tensor step;  // [] step count of the piece, or undefined; ranges may share it
};

}  // namespace fsdp
