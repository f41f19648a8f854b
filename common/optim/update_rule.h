#pragma once

#include <base/torch.h>

#include <string>
#include <vector>

namespace fsdp {

struct OptimizerOptions {
  enum class Kind { adamw, sgd };
  Kind kind{Kind::adamw};
  double lr{1e-4};
  double beta1{0.9};
  double beta2{0.999};
  double eps{1e-8};
  double weight_decay{0.01};  // decoupled for AdamW, added to the gradient for SGD
};

// Parameters that share options. A parameter belongs to the first group whose pattern is found in
// its name; the empty pattern is found in every name.
struct ParameterGroup {
  std::string pattern;  // ECMAScript regular expression
  OptimizerOptions options;
};
// Throws std::invalid_argument when no group matches.
size_t group_of(const std::string& parameter, const std::vector<ParameterGroup>& groups);

// A run of elements that is updated as one. The fused kernels treat the last numel mod 16 elements
// with other arithmetic, so numel is a multiple of 16: then any split gives the same bits.
struct Piece {
  at::Tensor parameter;   // [numel], view
  at::Tensor gradient;    // [numel], view
  at::Tensor exp_avg;     // [numel], owned; AdamW alone, undefined until the first update
  at::Tensor exp_avg_sq;  // [numel], owned; likewise
  at::Tensor step;        // [], owned; likewise
};

// One step of the optimizer on every piece: one kernel call. Allocates the state (class
// optimizer_state) of a piece that has none.
void update(const OptimizerOptions& options, std::vector<Piece>& pieces);

// Sum of squares of a contiguous fp32 tensor, in fp64, in an order that depends on numel and device
// alone. On CUDA the CPU waits for it.
double sum_of_squares(const at::Tensor& tensor);

}  // namespace fsdp
