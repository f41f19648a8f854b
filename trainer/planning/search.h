#pragma once

#include <planning/plan.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// Which settings a search tries. The others keep the values of the run that it is given.
struct Searched {
  bool strategy{true};       // full, grad_op, no, and hybrid with a replica on each host
  bool limit{true};          // 2, 1 and 4 unsharded units
  bool recomputation{true};  // of the activations of no block, every second block, all blocks
  bool dtype{true};          // fp32, and bf16 for parameters and reduced gradients
  bool step_in_backward{true};
  bool offload{true};  // the moments of AdamW in memory, and in files
  // Rows of a microbatch of a rank: 1, 2, 4, ..., at most 64. With `batch`, the global batch grows
  // with them; otherwise the number of microbatches falls.
  bool rows{true}, batch{true};
};

struct Candidate {
  std::string options;  // of train, for the settings that were tried: "--strategy full --limit 2"
  TrainConfig config;
  Plan plan;

  int64_t rows() const;    // of a microbatch of a rank
  int64_t tokens() const;  // of a step on all ranks
  bool offloads() const { return !config.memory.offload_dir.empty(); }
  bool prefetches() const { return config.sharding.limit_in_backward() > 1; }
  double flops_per_token() const;
  double tokens_per_second() const;  // of all ranks; 0: the plan has no time
};

// Tells search() about a model and a rank, and takes its progress.
struct SearchOf {
  std::function<ShardLayout(const TrainConfig& config)> layout;
  std::function<ModelTraces(const TrainConfig& config, const ShardLayout& layout)> traces;
  int64_t memory{};                                // [bytes] of a rank
  std::function<void(size_t planned)> progress{};  // called after each plan; empty: not called
};

// Plans `base` with every combination of the settings in `searched` that ./fsdp train takes.
// - The rows are doubled until no plan fits into the memory, or until the fastest plan computes at
//   most 1 % more tokens per second than with half as many rows; such plans are not returned.
// - Calls `traces` once for each dtype, recomputation and number of rows.
// - A plan that offloads has no time, because the time of its files is not predicted.
// Returns, in this order:
// - the plans that fit and have a time, the fastest first. Plans that are at most 1 % slower than
//   the fastest count as equally fast, and so on; the smallest of them comes first.
// - the other plans that fit: first those that do not offload, compute least for a token, and
//   prefetch; then by their peak;
// - the plans that do not fit, by their peak.
// Equal plans are in the order in which Searched names their values.
std::vector<Candidate> search(const TrainConfig& base, const Searched& searched,
                              const Machine& machine, const SearchOf& of);

}  // namespace fsdp
