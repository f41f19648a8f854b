#pragma once

#include <base/todo.h>
#include <flat_parameter.h>
#include <optim/matrix_owners.h>
#include <optim/muon.h>
#include <optim/p_norm.h>
#include <optim/state_range.h>
#include <optim/update_rule.h>

#include <memory>
#include <vector>

namespace fsdp {

// An optimizer that keeps state only for this rank's shards. With AdamW, the state is 2 x 4 bytes
// for each owned element, and a step count for each piece. A parameter is "frozen later" if it was
// trainable when the optimizer was made, and is frozen now.
// - A piece lies in one shard. You may make one piece for each parameter, or one piece for several
//   neighbouring parameters that belong to one group.
// - A piece ends at the first multiple of 16 elements after its last parameter, so it includes the
//   padding up to there. Padding is updated too, but no parameter depends on it, because each
//   element is updated from its own values. Its gradient is zero, so the norm ignores it.
// - Pieces are made when the optimizer is made. A parameter that is frozen at that moment has no
//   piece. It is never updated, even if it becomes trainable later.
class ShardedOptimizer {
 public:
  virtual ~ShardedOptimizer() = default;
  ShardedOptimizer(const ShardedOptimizer&) = delete;  // a copy would update the same shards

  // Updates each group by one update(), with the group's options. Calls no collective, unless a
  // parameter group uses Muon.
  // - Before the update, it reshards every unit, also a frozen one, because after the update
  //   gathered values would be old (for example the root's values after an evaluation).
  // - Before the update, it waits until no other rank reads the shards.
  // - A parameter that got no gradient has a gradient of zero, and is decayed. A parameter that was
  //   frozen later is decayed too, if its unit has trainable parameters.
  // - If all parameters of a unit were frozen later and the unit has no gradient, the unit is left
  //   out: its values, moments and step counts stay as they are. If such a unit still has a
  //   gradient, it is updated.
  // - The sharded gradients stay as they are, until zero_grad().
  // - Pieces are views: a step of AdamW copies neither values nor gradients.
  // Extension (see "Going further" in the handout): parameter groups that use Muon. Their matrices
  // are updated after the other groups, with the functions of muon.h. The units are those of this
  // optimizer, also frozen ones, and the ranks are all ranks, also those of other replicas.
  // - For each round of plan_matrices(): gathers the averaged gradients of each unit of the round
  // by
  //   one all-gather, in their order. The owner of each matrix orthogonalizes it. Then one
  //   reduce-scatter of each unit, in the same order, gives each rank the updates of its shard.
  // - Each of these collectives has padded_numel elements of fp32 and the unit's name.
  // - A unit that is left out (see above) is in no collective. A parameter that was frozen when the
  //   optimizer was made, and a matrix without elements, have no owner.
  // - At its peak it needs, beside the state, the units of one round, this rank's shards of them,
  //   and what orthogonalize() needs for one matrix.
  // Throws std::logic_error, before anything changes, if a unit with a trainable parameter has no
  // gradient. The message names the first such unit.
  virtual void step() = 0;

  // Drops the sharded gradients of all units, also of a unit that was frozen after its backward
  // pass, so that no later norm counts them.
  virtual void zero_grad() = 0;

  // Scales the sharded gradients by PyTorch's factor max_norm / (norm + 1e-6) if it is below 1, so
  // that their norm over all units of all ranks is at most `max_norm`.
  // - Returns the norm from before the scaling: the root of the exact sum of all squares. So the
  //   norm is the same on every rank, and for every W.
  // - A unit without a gradient adds nothing to the norm.
  // - Always calls one all-reduce of kDigits fp64 numbers.
  virtual double clip_grad_norm(double max_norm) = 0;

  // Extension (see "Going further" in the handout): scales as clip_grad_norm(max_norm) does, but by
  // another norm. norm_type is PyTorch's argument. If it is 2, this function does what
  // clip_grad_norm(max_norm) does.
  // - The norm is the p-norm of p_norm.h. It is the same for every W.
  // - If norm_type is not 2, always calls one all-gather, in which each rank sends one fp64 number.
  //   Then, unless norm_type is infinite, always calls one all-reduce of kDigits fp64 numbers.
  // Throws std::invalid_argument, before any collective, unless norm_type is above 0.
  virtual double clip_grad_norm(double /*max_norm*/, double /*norm_type*/) {
    todo("ShardedOptimizer::clip_grad_norm", "5.4");
  }

  // Extension (see "Going further" in the handout): returns this rank's part of the values and of
  // the state, as views. Calls no collective.
  // - If this rank owns at least one element of a parameter, there is one range for this parameter,
  //   also if it is frozen. The ranges have the order of the units, and within a unit the order of
  //   its parameters.
  // - State that does not exist yet is allocated.
  // - As step() does, this function reshards every unit, also a frozen one, and waits until no
  //   other rank reads the shards. So the caller may write to the views.
  virtual std::vector<StateRange> state() { todo("ShardedOptimizer::state", "5.5"); }

 protected:
  ShardedOptimizer() = default;
};

// Makes the optimizer of `units`, which may be frozen. A frozen parameter needs no group.
// Throws std::invalid_argument if a trainable parameter belongs to no group, or if a group of Muon
// has a trainable parameter that is not a matrix. The message names the parameter.
std::shared_ptr<ShardedOptimizer> make_sharded_optimizer(
    std::vector<std::shared_ptr<FlatParameter>> units, std::vector<ParameterGroup> groups,
    std::shared_ptr<Communicator> comm);

}  // namespace fsdp
