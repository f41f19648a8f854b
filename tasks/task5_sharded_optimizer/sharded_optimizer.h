#pragma once

#include <base/todo.h>
#include <flat_parameter.h>
#include <optim/p_norm.h>
#include <optim/state_range.h>
#include <optim/update_rule.h>

#include <memory>
#include <vector>

namespace fsdp {

// An optimizer that keeps state only for this rank's shards: with AdamW 2 x 4 bytes for each owned
// element, and a step count for each piece. "Frozen since" means: trainable when the optimizer was
// made, and frozen later.
// - A piece lies in one shard. There is one piece for each run of neighbours whose parameters
//   belong to one group, or one for each parameter: both are right.
// - A piece ends at the first multiple of 16 elements after its last parameter, so it includes the
//   padding up to there. Padding is updated too, but no result depends on it: its gradient is zero.
// - Pieces are made with the optimizer: a parameter that is frozen then has no piece, and is never
//   updated, even if it is trainable later.
class ShardedOptimizer {
 public:
  virtual ~ShardedOptimizer() = default;
  ShardedOptimizer(const ShardedOptimizer&) = delete;  // a copy would update the same shards

  // Updates each group by one update(), with the group's options. Calls no collective.
  // - Before the update, it reshards every unit, frozen ones too, because gathered values would be
  //   stale afterwards (those of the root after an evaluation, for example).
  // - Before the update, it waits until no other rank reads the shards.
  // - A parameter that got no gradient has a gradient of zero, and is decayed. So is a parameter
  //   that was frozen since, beside trainable ones.
  // - A unit whose parameters were all frozen since, and which has no gradient, is left out: its
  //   values, moments and step counts stay as they are. If it still has a gradient, it is updated.
  // - Pieces are views: a step of AdamW copies neither values nor gradients.
  // Throws std::logic_error, before anything changes, if a unit with a trainable parameter has no
  // gradient. The message names the first such unit.
  virtual void step() = 0;

  // Drops the sharded gradients of all units, also of a unit that was frozen since its backward
  // pass, so that no later norm counts them.
  virtual void zero_grad() = 0;

  // Scales the sharded gradients by PyTorch's factor max_norm / (norm + 1e-6) if it is below 1, so
  // that their norm over all units of all ranks is at most `max_norm`.
  // - Returns the norm before scaling: the root of the exact sum of all squares. So it is the same
  //   on every rank, and for every W.
  // - Units without a gradient add nothing.
  // - Calls one all-reduce of kDigits fp64 numbers, in any case.
  virtual double clip_grad_norm(double max_norm) = 0;

  // Extension (see "Going further" in the handout): clip_grad_norm() for another norm, with
  // PyTorch's argument norm_type; 2 is the norm of clip_grad_norm(max_norm).
  // - The norm is that of p_norm.h: it is the same for every W.
  // - If norm_type is not 2, calls one all-gather of one fp64 number of each rank and, unless
  //   norm_type is infinite, one all-reduce of kDigits fp64 numbers, in any case.
  // Throws std::invalid_argument, before any collective, unless norm_type is above 0.
  virtual double clip_grad_norm(double /*max_norm*/, double /*norm_type*/) {
    todo("ShardedOptimizer::clip_grad_norm", "5.4");
  }

  // Extension (see "Going further" in the handout): returns this rank's part of the values and of
  // the state, as views. Calls no collective.
  // - There is one range for each parameter of which this rank owns an element, frozen or not.
  //   Ranges come in the order of the units, then of their parameters.
  // - State that does not exist yet is allocated.
  // - As step() does, it reshards every unit, frozen ones too, and waits until no other rank reads
  //   the shards. So you may write to the views.
  virtual std::vector<StateRange> state() { todo("ShardedOptimizer::state", "5.5"); }

 protected:
  ShardedOptimizer() = default;
};

// Makes the optimizer of `units`, frozen ones too. A frozen parameter needs no group.
// Throws std::invalid_argument, which names the parameter, if a trainable parameter belongs to no
// group.
std::shared_ptr<ShardedOptimizer> make_sharded_optimizer(
    std::vector<std::shared_ptr<FlatParameter>> units, std::vector<ParameterGroup> groups,
    std::shared_ptr<Communicator> comm);

}  // namespace fsdp
