#pragma once

#include <flat_parameter.h>
#include <optim/p_norm.h>
#include <optim/state_range.h>
#include <optim/update_rule.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace fsdp {

// An optimizer that keeps state for this rank's shards alone: with AdamW 2 x 4 bytes per owned
// element, and a step count per piece. A piece lies in one shard. There is one for each run of
// neighbours whose parameters belong to one group, or one for each parameter: both are right. A
// piece ends at the first multiple of 16 elements after its last parameter, so it includes the
// padding up to there. A frozen parameter has no piece. Padding is updated too, but no result
// depends on it: its gradient is zero.
class ShardedOptimizer {
 public:
  // Throws std::invalid_argument naming a trainable parameter that belongs to no group. A frozen
  // parameter needs no group.
  ShardedOptimizer(std::vector<std::shared_ptr<FlatParameter>> units,
                   std::vector<ParameterGroup> groups, std::shared_ptr<Communicator> comm);
  ShardedOptimizer(const ShardedOptimizer&) = delete;  // a copy would update the same shards

  // Throws std::logic_error naming the first unit with a trainable parameter that has no gradient,
  // and then changes nothing. Reshards every unit, frozen ones too, since what is gathered would be
  // stale afterwards (the root after an evaluation, for example). Waits until no other rank reads
  // the shards. Updates each group by one update(), with the group's options. Calls no collective.
  // A parameter that got no gradient has a gradient of zero, and is decayed. Pieces are views: a
  // step of AdamW copies neither values nor gradients.
  void step();

  void zero_grad();  // drops the sharded gradients

  // Scales the sharded gradients by PyTorch's factor max_norm / (norm + 1e-6) if it is below 1, so
  // that their norm over all units of all ranks is at most `max_norm`. Returns the norm before: the
  // root of the exact sum of all squares. So it is the same on every rank, and for every W. Units
  // without a gradient add nothing. Calls one all-reduce of kDigits fp64 numbers, in any case.
  double clip_grad_norm(double max_norm);

  // Extension (see "Going further" in the handout): the same for another norm, with PyTorch's
  // argument norm_type; 2 is the one above. Throws std::invalid_argument unless norm_type is above
  // 0, and then calls no collective. The norm is that of p_norm.h: it is the same for every W. If
  // norm_type is not 2, calls one all-gather of one fp64 number of each rank and, unless norm_type
  // is infinite, one all-reduce of kDigits fp64 numbers, in any case.
  double clip_grad_norm(double max_norm, double norm_type);

  // Extension (see "Going further" in the handout): this rank's part of the values and of the
  // state, as views. There is one range for each parameter of which this rank owns an element,
  // frozen or not. Ranges come in the order of the units, then of their parameters. State that does
  // not exist yet is allocated. Reshards every unit, frozen ones too, and waits until no other rank
  // reads the shards, as step() does: so you may write to the views. Calls no collective.
  std::vector<StateRange> state();

 private:
  std::vector<std::shared_ptr<FlatParameter>> units_;  // also frozen ones
  std::vector<ParameterGroup> groups_;
  std::shared_ptr<Communicator> comm_;

  struct Owner {
    size_t group, piece;
  };
  using Place =
      std::pair<size_t, int64_t>;  // a unit, and the first element of a piece in its shard

  void own(size_t unit, size_t group, int64_t begin, int64_t end);  // of the unit's shard
  Piece* piece_at(size_t unit, int64_t element);  // of the unit's shard; null: it has no state
  // No all-gather may read or fill what is written next.
  void stop_gathering();
  void scale_gradients(double max_norm, double norm);

  std::vector<std::vector<Piece>> pieces_;  // by group; a gradient only during a step
  std::map<Place, Owner> owners_;
};

}  // namespace fsdp
