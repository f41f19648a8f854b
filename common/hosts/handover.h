#pragma once

#include <base/memory_file.h>
#include <launch/rank_context.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace fsdp {

// The state that a failed rank saves in memory after a host was lost. The process that has forked
// this rank passes the state to the new rank that it forks in its place. A rank that has all inputs
// of an update, but can't know whether other ranks have made it, saves two states, one from before
// and one from after the update. The processes agree on one of them (survivor_decision.h).
class Handover {
 public:
  Handover();

  // For the rank that has failed: `write` writes the state after `steps` steps to the file. Call it
  // at most twice. Throws what `write` throws; then this state is not saved.
  void save(int64_t steps, const std::function<void(int file)>& write) const;

  // For the process that has forked the rank: returns the numbers of steps after which the states
  // were saved, in the order of save().
  std::vector<int64_t> saved_steps() const;
  void select(int64_t steps) const;  // keeps this state to be read, and frees the other

  // For the new rank: steps() returns the number of steps after which the state was saved; nothing
  // if this rank starts from the beginning. file() has the state, to be read once from its current
  // position.
  std::optional<int64_t> steps() const;
  int file() const;
  void free() const;  // call it when the state was read

 private:
  std::array<OpenFile, 2> files_;  // memory files: steps + 1, then what `write` wrote
};

// Returns whether this rank has failed because it waited for a rank that was lost, or because a
// library failed and the cause is not known. Only then may it save its state.
bool has_lost_a_rank(const RankContext& context);

}  // namespace fsdp
