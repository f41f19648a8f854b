#pragma once

#include <base/todo.h>
#include <flat_parameter.h>
#include <optim/p_norm.h>
#include <optim/state_range.h>
#include <optim/update_rule.h>

#include <memory>
#include <vector>

namespace fsdp {

// An optimizer that keeps state for this rank's shards alone: with AdamW 2 x 4 bytes per owned
// element, and a step count per piece. A piece lies in one shard. There is one for each run of
// neighbours whose parameters belong to one group, or one for each parameter: both are right. A
// piece ends at the first multiple of 16 elements after its last parameter, so it includes the
// padding up to there. Padding is updated too, but no result depends on it: its gradient is zero.
// Pieces are made with the optimizer: a parameter that is frozen then has no piece, and is never
// updated, even if it is trainable later.
class ShardedOptimizer {
 public:
  virtual ~ShardedOptimizer() = default;
  ShardedOptimizer(const ShardedOptimizer&) = delete;  // a copy would update the same shards

  // Throws std::logic_error naming the first unit with a trainable parameter that has no gradient,
  // and then changes nothing. Reshards every unit, frozen ones too, since what is gathered would be
  // stale afterwards (the root after an evaluation, for example). Waits until no other rank reads
  // the shards. Updates each group by one update(), with the group's options. Calls no collective.
  // A parameter that got no gradient has a gradient of zero, and is decayed: also one that was
  // frozen since the optimizer was made, beside trainable ones. A unit of which all parameters were
  // frozen since, and which has no gradient, is left out: its values, moments and step counts stay
  // as they are. If it still has a gradient, it is updated. Pieces are views: a step of AdamW
  // copies neither values nor gradients.
  virtual void step() = 0;

  // Drops the sharded gradients of all units, also of a unit that was frozen since its backward
  // pass: no later norm counts them.
  virtual void zero_grad() = 0;

  // Scales the sharded gradients by PyTorch's factor max_norm / (norm + 1e-6) if it is below 1, so
  // that their norm over all units of all ranks is at most `max_norm`. Returns the norm before: the
  // root of the exact sum of all squares. So it is the same on every rank, and for every W. Units
  // without a gradient add nothing. Calls one all-reduce of kDigits fp64 numbers, in any case.
  virtual double clip_grad_norm(double max_norm) = 0;

  // Extension (see "Going further" in the handout): the same for another norm, with PyTorch's
  // argument norm_type; 2 is the one above. Throws std::invalid_argument unless norm_type is above
  // 0, and then calls no collective. The norm is that of p_norm.h: it is the same for every W. If
  // norm_type is not 2, calls one all-gather of one fp64 number of each rank and, unless norm_type
  // is infinite, one all-reduce of kDigits fp64 numbers, in any case.
  virtual double clip_grad_norm(double /*max_norm*/, double /*norm_type*/) {
    todo("ShardedOptimizer::clip_grad_norm", "5.4");
  }

  // Extension (see "Going further" in the handout): this rank's part of the values and of the
  // state, as views. There is one range for each parameter of which this rank owns an element,
  // frozen or not. Ranges come in the order of the units, then of their parameters. State that does
  // not exist yet is allocated. Reshards every unit, frozen ones too, and waits until no other rank
  // reads the shards, as step() does: so you may write to the views. Calls no collective.
  virtual std::vector<StateRange> state() { todo("ShardedOptimizer::state", "5.5"); }

 protected:
  ShardedOptimizer() = default;
};

// Makes the optimizer of `units`, frozen ones too. Throws std::invalid_argument naming a trainable
// parameter that belongs to no group. A frozen parameter needs no group.
std::shared_ptr<ShardedOptimizer> make_sharded_optimizer(
    std::vector<std::shared_ptr<FlatParameter>> units, std::vector<ParameterGroup> groups,
    std::shared_ptr<Communicator> comm);

}  // namespace fsdp
