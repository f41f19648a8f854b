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

  // For the rank that has failed: saves a state. `write` writes the state after `steps` steps to
  // the file. Call save() at most twice. Throws what `write` throws; then this state is not saved.
  void save(int64_t steps, const std::function<void(int file)>& write) const;

  // For the process that has forked the rank: returns the numbers of steps after which the states
  // were saved, in the order of save().
  std::vector<int64_t> saved_steps() const;
  // Keeps the saved state after `steps` steps for the new rank. If a state after another number of
  // steps was saved too, frees that state.
  void select(int64_t steps) const;

  // For the new rank: steps() returns the number of steps after which the state was saved; nothing
  // if there is no state, because this rank starts from the beginning. file() returns the
  // descriptor of the file with the state, to be read once from its current position.
  std::optional<int64_t> steps() const;
  int file() const;
  void free() const;  // frees the states; call it when the new rank has read its state

 private:
  // Files in memory: each begins with the number of steps + 1, then has the state.
  std::array<OpenFile, 2> files_;
};

// Returns whether this rank has failed because it waited for a rank that was lost, or because a
// library failed and the cause is not known. Only then may it save its state.
bool has_lost_a_rank(const RankContext& context);

}  // namespace fsdp
