#pragma once

#include <receipt/receipt.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

// An auditor computes pieces of a run again, and compares them with the run's receipt.
namespace fsdp {

// Steps of a run, or one microbatch of a step, that one process computes again.
struct Recomputation {
  int64_t first_step;             // begins with the state before this step, which is known
  int64_t end_step;               // the step after the last one
  std::optional<int> microbatch;  // computes only this microbatch of `first_step`; empty: all

  // Returns whether this recomputation computes the event.
  bool covers(const EventKey& key) const;
};

struct Draw {
  std::vector<EventKey> events;
  std::vector<Recomputation> recomputations;  // together they cover `events`
};

// Draws `count` different events of the receipt, or all if it has fewer. The same seed draws the
// same events. An event of a microbatch is computed by this microbatch alone if the state before
// its step is known. Otherwise all steps are computed from the latest step of which the state is
// known. `known`: the steps before which the state is known. Throws std::invalid_argument if no
// state is known, or none before an event that is drawn.
Draw draw(const Receipt& receipt, size_t count, uint64_t seed, const std::set<int64_t>& known);

// Draws `count` different microbatches of the steps before which the state is known, or all if
// there are fewer. The same seed draws the same microbatches. Throws std::invalid_argument if no
// state is known.
std::vector<Recomputation> draw_microbatches(const Receipt& receipt, size_t count, uint64_t seed,
                                             const std::set<int64_t>& known);

struct Verdict {
  int64_t equal{};         // events that are equal
  std::string wrong;       // the first event that is not equal; empty: there is none
  std::vector<int> ranks;  // the processes that made it
};

// Compares what the recomputation made with the receipt: every event that it covers and that the
// receipt samples must be in both, with the same hash. If the recomputation begins with a
// checkpoint, its parameters must be those that the receipt has after the step before.
// Throws std::invalid_argument, which names a setting, if the settings of the two differ.
Verdict compare_with(const Receipt& receipt, const Recomputation& piece, const RunHashes& made);

}  // namespace fsdp
