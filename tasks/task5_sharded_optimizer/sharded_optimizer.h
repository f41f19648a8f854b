#pragma once

#include <flat_parameter.h>
#include <optim/update_rule.h>

#include <memory>
#include <vector>

namespace fsdp {

// An optimizer whose state exists for this rank's shards alone: with AdamW 2 x 4 bytes per owned
// element and a step count per piece. A piece is a run of a shard whose parameters lie in one
// group, or the part of it that one parameter takes, up to the next multiple of 16; frozen
// parameters have none. Padding has neither value nor gradient, so an update leaves it zero.
class ShardedOptimizer {
 public:
  // Throws std::invalid_argument naming a parameter that no group takes.
  ShardedOptimizer(std::vector<std::shared_ptr<FlatParameter>> units,
                   std::vector<ParameterGroup> groups, std::shared_ptr<Communicator> comm);

  // Updates the shards, when no other rank reads them any more. Units that are still gathered are
  // freed before: what they hold would be old, as the root's parameters after a forward that no
  // backward followed. No collective. Throws std::logic_error naming a unit without a gradient.
  void step();

  // Drops the sharded gradients.
  void zero_grad();

  // Scales the sharded gradients so that their norm over all units of all ranks is at most
  // `max_norm`, with PyTorch's max_norm / (norm + 1e-6). Returns the norm before, the same on every
  // rank: sums of squares of the shards in fp64, added over units, then over ranks. One all-reduce
  // of 8 bytes.
  double clip_grad_norm(double max_norm);

 private:
  std::vector<std::shared_ptr<FlatParameter>> units_;  // with a trainable parameter
  std::vector<ParameterGroup> groups_;
  std::shared_ptr<Communicator> comm_;

  // Add what you need.
};

}  // namespace fsdp
