#pragma once

#include <planning/plan.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// The settings for which a search tries several values. A setting that is false here keeps the
// value that it has in the run that the search is given.
struct Searched {
  bool strategy{true};  // tries full, grad_op, no, and hybrid with a replica on each host
  bool limit{true};     // tries 2, 1 and 4 units that may be unsharded at a time
  // Tries to recompute the activations of no block, of every second block, and of all blocks.
  bool recomputation{true};
  bool dtype{true};  // tries fp32, and bf16 for parameters and reduced gradients
  bool step_in_backward{true};
  bool offload{true};  // tries AdamW's moments in memory, and in files
  // `rows`: tries microbatches of 1, 2, 4, ..., at most 64 rows. `batch`: the global batch grows
  // with the rows; if it is false, the number of microbatches falls.
  bool rows{true}, batch{true};
};

struct Candidate {
  // Options of ./fsdp train for the settings that were tried: "--strategy full --limit 2".
  std::string options;
  TrainConfig config;
  Plan plan;

  int64_t rows() const;    // returns the rows of one microbatch
  int64_t tokens() const;  // returns the tokens of one step on all ranks
  bool offloads() const { return !config.memory.offload_dir.empty(); }
  bool prefetches() const { return config.sharding.limit_in_backward() > 1; }
  double flops_per_token() const;
  // Returns the tokens that all ranks together compute per second; 0 if the plan has no predicted
  // time.
  double tokens_per_second() const;
};

// What search() needs from its caller: functions that return the layout and the traces of a model,
// the memory of a rank, and a function that is told how many plans are made.
struct SearchOf {
  std::function<ShardLayout(const TrainConfig& config)> layout;
  std::function<ModelTraces(const TrainConfig& config, const ShardLayout& layout)> traces;
  int64_t memory{};                                // number of bytes of memory that a rank has
  std::function<void(size_t planned)> progress{};  // called after each plan; null: not called
};

// Plans `base` with every combination of the settings in `searched` that ./fsdp train takes.
// - The rows are doubled until no plan fits into the memory, or until the fastest plan computes at
//   most 1 % more tokens per second than with half as many rows; in the second case, the plans with
//   the last number of rows are not returned.
// - Calls `traces` once for each dtype, recomputation and number of rows.
// - A plan with moments in files has no predicted time, because the time for reading and writing
//   files is not predicted.
// Returns, in this order:
// - the plans that fit and have a time, the fastest first. Plans that are at most 1 % slower than
//   the fastest count as equally fast, and so on for the slower plans; of equally fast plans, the
//   one with the smallest peak of memory comes first.
// - the other plans that fit: those that do not offload before those that do; then by the
//   operations for a token, the fewest first; then those that prefetch before those that do not;
//   then by their peak of memory;
// - the plans that do not fit, by their peak of memory.
// Equal plans are in the order in which Searched names their values.
std::vector<Candidate> search(const TrainConfig& base, const Searched& searched,
                              const Machine& machine, const SearchOf& of);

}  // namespace fsdp
