#pragma once

#include <flat_parameter.h>
#include <optim/p_norm.h>
#include <optim/state_range.h>
#include <optim/update_rule.h>

#include <memory>
#include <vector>

namespace fsdp {

// The contract is in tasks/. Here every parameter that this rank owns a part of is a piece.
class ShardedOptimizer {
 public:
  ShardedOptimizer(std::vector<std::shared_ptr<FlatParameter>> units,
                   std::vector<ParameterGroup> groups, std::shared_ptr<Communicator> comm);
  ShardedOptimizer(const ShardedOptimizer&) = delete;

  void step();
  void zero_grad();
  double clip_grad_norm(double max_norm);
  double clip_grad_norm(double max_norm, double norm_type);
  std::vector<StateRange> state();

 private:
  struct Group {
    OptimizerOptions options;
    std::vector<Piece> pieces;
    std::vector<const FlatParameter*> units;  // of each piece
    std::vector<size_t> indices;              // of each piece's parameter in its unit
  };
  std::vector<at::Tensor> gradients() const;  // of the trainable units that have one

  std::vector<std::shared_ptr<FlatParameter>> units_;
  std::vector<Group> groups_;
  std::shared_ptr<Communicator> comm_;
};

}  // namespace fsdp
