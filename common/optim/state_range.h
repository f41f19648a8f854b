#pragma once

#include <base/torch.h>

#include <cstdint>
#include <string>

namespace fsdp {

// Neighbouring elements of one parameter and their optimizer state. The tensors are views: writing
// to them changes the training state. Elements are indices into the parameter, in row-major order.
// Therefore a range does not depend on units, shards, pieces or ranks, and no range has padding.
struct StateRange {
  std::string parameter;   // name of the parameter; if it has several names, the first one
  int64_t begin{}, end{};  // the elements from `begin` to end - 1; begin < end
  at::Tensor value;        // [end - begin], the values of these elements of the parameter
  // The moments of these elements, each [end - begin]. exp_avg and exp_avg_sq are undefined for SGD
  // and for frozen parameters; for Muon, only exp_avg_sq is undefined.
  at::Tensor exp_avg, exp_avg_sq;
  // [], the step count of the Piece that contains these elements; all ranges of a piece share this
  // tensor. Undefined if exp_avg is undefined.
  at::Tensor step;
};

}  // namespace fsdp
