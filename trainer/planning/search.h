#pragma once

#include <planning/plan.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

struct Candidate {
  std::string options;  // "--strategy grad_op --checkpoint-activations all --limit 4"
  TrainConfig config;
  Plan plan;
};

using Layout = std::function<ShardLayout(const TrainConfig& config)>;
using Traces = std::function<ModelTraces(const TrainConfig& config, const ShardLayout& layout)>;

// Plans of `base` with every strategy (hybrid: a replica on each host), with activations of no
// block, of every second and of all recomputed, and with a limit of 1, 2 and 4 units. Those whose
// peak is at most `memory` come first, the fastest first (where times are not known, that of the
// lowest peak); then the others, the lowest peak first. Rehearses each way to recompute once.
std::vector<Candidate> search(const TrainConfig& base, const Machine& machine, int64_t memory,
                              const Layout& layout, const Traces& traces);

}  // namespace fsdp
