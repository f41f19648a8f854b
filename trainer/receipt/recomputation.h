#pragma once

#include <receipt/receipt.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

// This file has the functions with which an auditor chooses parts of a run to compute again, and
// compares the results with the run's receipt.
namespace fsdp {

// Steps of a run, or one microbatch of a step, that one process computes again for an audit.
struct Recomputation {
  int64_t first_step;  // the first step that is computed; the state before it is known
  int64_t end_step;    // the step after the last one that is computed
  // If it has a value, only this microbatch of `first_step` is computed.
  std::optional<int> microbatch;

  // Returns whether this recomputation computes the event `key`.
  bool covers(const EventKey& key) const;
};

struct Draw {
  std::vector<EventKey> events;
  // The recomputations that together compute all of `events` again.
  std::vector<Recomputation> recomputations;
};

// Draws `count` different events of the receipt, or all if it has fewer, and plans the
// recomputations that compute them again. The same seed draws the same events.
// - `known`: the steps before which the state is known, from a checkpoint or from the start of the
//   run.
// - If an event belongs to a microbatch of a step in `known`, a recomputation of this microbatch
//   alone computes it, unless whole steps that include it are computed. For any other event, whole
//   steps are computed, from the latest step in `known` that is not after the event's step.
// Throws std::invalid_argument if `known` has no step that is not after the step of a drawn event.
Draw draw(const Receipt& receipt, size_t count, uint64_t seed, const std::set<int64_t>& known);

// Draws `count` different microbatches of the steps in `known`, or all if there are fewer. `known`:
// the steps before which the state is known. The same seed draws the same microbatches. Throws
// std::invalid_argument if `known` is empty.
std::vector<Recomputation> draw_microbatches(const Receipt& receipt, size_t count, uint64_t seed,
                                             const std::set<int64_t>& known);

struct Verdict {
  int64_t equal{};         // number of events whose hashes are equal
  std::string wrong;       // the first event that differs or is missing, as text; empty: none
  std::vector<int> ranks;  // the ranks that the receipt names for the event `wrong`
};

// Compares the events `made` by the recomputation `piece` with the receipt. Each event that `piece`
// computes and that the receipt samples must be in both, with the same hash. If `piece` begins with
// a checkpoint, the parameters in the checkpoint must be those that the receipt has after the
// previous step. Throws std::invalid_argument, which names a setting, if the settings of the run
// and of the recomputation differ.
Verdict compare_with(const Receipt& receipt, const Recomputation& piece, const RunHashes& made);

}  // namespace fsdp
