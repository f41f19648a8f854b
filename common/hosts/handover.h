#pragma once

#include <base/memory_file.h>
#include <launch/rank_context.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace fsdp {

// What a rank leaves, in memory, to the rank that its process forks in its place when a host was
// lost. A rank that has all that an update needs, but can't know whether others have made it,
// leaves two states: before and after. The processes agree on one (survivor_decision.h).
class Handover {
 public:
  Handover();

  // That of this process, if it is a rank whose place another one may take; else null.
  inline static const Handover* current{};

  // Of the rank that ends: `write` writes a state after so many steps to the file. Call it twice at
  // most. Throws what `write` throws; then nothing is left.
  void save(int64_t steps, const std::function<void(int file)>& write) const;

  // Of the process: after how many steps the states are that were left, in their order.
  std::vector<int64_t> saved_steps() const;
  void select(int64_t steps) const;  // one of them, to be read, and frees the others

  // Of the rank that takes over: the steps behind the state, and the file, to be read once from
  // where it is. Nothing if this rank begins.
  std::optional<int64_t> steps() const;
  int file() const;
  void free() const;  // the state was read

 private:
  std::array<OpenFile, 2> files_;  // memory files: the steps and 1, then what was written
};

// Returns whether this rank has failed because it waited for a rank that was lost: only then may it
// leave its state.
bool has_lost_a_rank(const RankContext& context);

}  // namespace fsdp
