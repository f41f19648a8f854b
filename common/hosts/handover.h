#pragma once

#include <base/memory_file.h>
#include <launch/rank_context.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace fsdp {

// The state that a rank leaves in memory for the rank that its process forks in its place after a
// host was lost. A rank that has all inputs of an update, but can't know whether other ranks have
// made it, leaves two states: before and after the update. The processes agree on one of them
// (survivor_decision.h).
class Handover {
 public:
  Handover();

  // The Handover of this process, if it is a rank that another rank may replace; else null.
  inline static const Handover* current{};

  // For the rank that ends: `write` writes the state after `steps` steps to the file. Call it at
  // most twice. Throws what `write` throws; then this state is not left.
  void save(int64_t steps, const std::function<void(int file)>& write) const;

  // For the process: returns after how many steps the states are that were left, in the order of
  // leave().
  std::vector<int64_t> saved_steps() const;
  void select(int64_t steps) const;  // keeps this state to be read, and frees the other

  // For the rank that takes over: steps() returns the number of steps before the state; nothing if
  // this rank starts from the beginning. file() has the state, to be read once from its current
  // position.
  std::optional<int64_t> steps() const;
  int file() const;
  void free() const;  // call it when the state was read

 private:
  std::array<OpenFile, 2> files_;  // memory files: steps + 1, then what `write` wrote
};

// Returns whether this rank has failed because it waited for a rank that was lost: only then may it
// leave its state.
bool has_lost_a_rank(const RankContext& context);

}  // namespace fsdp
