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
  // Returns fp32 zeros [numel], in memory that the store provides. The tensor is valid while the
  // store lives.
  virtual at::Tensor zeros(int64_t numel) = 0;
  // The optimizer's update() calls used() after it has used `part`, which is a part of a tensor
  // from zeros(). The parts come in the same order in each step.
  virtual void used(const at::Tensor& part) = 0;
};

struct OptimizerOptions {
  enum class Kind { adamw, sgd, muon };
  Kind kind{Kind::adamw};
  double lr{1e-4};
  double beta1{0.9};
  double beta2{0.999};
  double eps{1e-8};
  // Weight decay: SGD adds weight_decay times the parameter to the gradient; AdamW and Muon use
  // decoupled weight decay.
  double weight_decay{0.01};
  double momentum{0.95};  // momentum of Muon; SGD and AdamW do not use it
  // The store that allocates the moments of AdamW; null: the moments are ordinary tensors in
  // memory.
  std::shared_ptr<MomentStore> moments{};
  // A factor by which each update multiplies lr; each update reads it anew. Null: the factor is 1.
  std::shared_ptr<double> lr_factor{};

  // The number of moments that the optimizer keeps for each element of a parameter: 2 for AdamW, 1
  // for Muon, 0 for SGD.
  int moments_of_element() const { return kind == Kind::adamw ? 2 : kind == Kind::muon ? 1 : 0; }
  double current_lr() const { return lr_factor ? lr * *lr_factor : lr; }
};

// Parameters that share options. A parameter belongs to the first group whose pattern matches some
// part of its name. The empty pattern matches every name.
struct ParameterGroup {
  std::string pattern;  // ECMAScript regular expression for parts of parameters' names
  OptimizerOptions options;
};
inline bool is_muon(const ParameterGroup& group) {
  return group.options.kind == OptimizerOptions::Kind::muon;
}
// Returns the index in `groups` of the group to which the parameter with the name `parameter`
// belongs. Throws std::invalid_argument if no group matches, or if a pattern is not a regular
// expression.
size_t group_of(const std::string& parameter, const std::vector<ParameterGroup>& groups);

// Neighbouring elements of a shard that are updated together. The fused kernels compute the last
// numel mod 16 elements with other arithmetic, so numel must be a multiple of 16: then the bits of
// an element do not depend on how elements are split into pieces.
struct Piece {
  at::Tensor parameter;  // [numel], view of the shard
  at::Tensor gradient;   // [numel], view of the sharded gradient
  // The optimizer's state of the piece: exp_avg, exp_avg_sq and step. They are undefined until
  // allocate_state() allocates them, and always for SGD.
  at::Tensor exp_avg;     // [numel]
  at::Tensor exp_avg_sq;  // [numel]; undefined for Muon
  at::Tensor step;        // [] step count
};

// Allocates the state of the pieces that have none yet, as zeros in the memory class
// optimizer_state. The state of AdamW is exp_avg, exp_avg_sq and step; if options.moments is set,
// this MomentStore allocates exp_avg and exp_avg_sq. The state of Muon is exp_avg and step, always
// in memory. SGD has no state.
void allocate_state(const OptimizerOptions& options, std::vector<Piece>& pieces);

// Updates every piece by one step of the optimizer. AdamW updates all pieces in one kernel call; if
// options.moments is set, it calls the kernel once for each part of a piece. Allocates state as
// allocate_state() does. Throws std::invalid_argument for a piece whose numel is not a multiple of
// 16. Calls todo() for Muon, which needs whole matrices (muon.h).
void update(const OptimizerOptions& options, std::vector<Piece>& pieces);

}  // namespace fsdp
