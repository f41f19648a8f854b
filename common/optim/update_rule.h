#pragma once

#include <base/torch.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// Stores the moments of AdamW outside memory, for example in a file.
class MomentStore {
 public:
  virtual ~MomentStore() = default;
  virtual at::Tensor zeros(int64_t numel) = 0;  // [numel], fp32, valid while the store lives
  // update() calls used() after each use of a part of a tensor that zeros() has returned, in the
  // same order in each step.
  virtual void used(const at::Tensor& part) = 0;
};

struct OptimizerOptions {
  enum class Kind { adamw, sgd };
  Kind kind{Kind::adamw};
  double lr{1e-4};
  double beta1{0.9};
  double beta2{0.999};
  double eps{1e-8};
  double weight_decay{0.01};               // decoupled for AdamW, added to the gradient for SGD
  std::shared_ptr<MomentStore> moments{};  // null: in memory
  std::shared_ptr<double> lr_factor{};     // read at each update, for a schedule; null: 1
};

// Parameters that share options. A parameter belongs to the first group whose pattern matches some
// part of its name. The empty pattern matches every name.
struct ParameterGroup {
  std::string pattern;  // ECMAScript regular expression
  OptimizerOptions options;
};
// Returns the index of the parameter's group. Throws std::invalid_argument if no group matches, or
// if a pattern is not a regular expression.
size_t group_of(const std::string& parameter, const std::vector<ParameterGroup>& groups);

// Neighbouring elements that are updated together. The fused kernels compute the last numel mod 16
// elements with other arithmetic, so numel must be a multiple of 16: then the bits of an element do
// not depend on how elements are split into pieces.
struct Piece {
  at::Tensor parameter;  // [numel], view
  at::Tensor gradient;   // [numel], view
  // The state of AdamW, owned; undefined until the first update, and always for SGD.
  at::Tensor exp_avg;     // [numel]
  at::Tensor exp_avg_sq;  // [numel]
  at::Tensor step;        // []
};

// Allocates the state of the pieces that have none yet, as zeros in the memory class
// optimizer_state. If options.moments is set, the moments are in that store instead. SGD has no
// state.
void allocate_state(const OptimizerOptions& options, std::vector<Piece>& pieces);

// Updates every piece by one step of the optimizer. AdamW needs one kernel call, or one for each
// part of a piece if options.moments is set. Allocates state as allocate_state() does. Throws
// std::invalid_argument for a piece whose numel is not a multiple of 16.
void update(const OptimizerOptions& options, std::vector<Piece>& pieces);

}  // namespace fsdp
