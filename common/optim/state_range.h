#pragma once

#include <base/torch.h>

#include <cstdint>
#include <string>

namespace fsdp {

// Neighbouring elements of one parameter and the optimizer's state of them, as views: who writes to
// them changes the training. Elements are counted in the parameter itself, in row-major order. So a
// range says nothing of units, shards, pieces or ranks, and padding is in no range.
struct StateRange {
  std::string parameter;           // its first name
  int64_t begin{}, end{};          // [elements] begin < end
  at::Tensor value;                // [end - begin]
  at::Tensor exp_avg, exp_avg_sq;  // [end - begin], or undefined: SGD and frozen parameters
  at::Tensor step;                 // [] of the piece, or undefined; ranges may share it
};

}  // namespace fsdp
