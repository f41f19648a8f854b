#pragma once

#include <prediction/prediction.h>
#include <prediction/step_time.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// What ranks run on.
struct Machine {
  int ranks_per_host{8};
  std::optional<Link> within, between;  // two ranks of one host, and of two
  double flops{};                       // that a rank computes per second; 0: not known
  std::string backend{"nccl"};          // whose buffers are counted: shm, gloo or nccl
};

// What a step costs on rank 0, from the second one on.
struct Plan : PredictedMemory {
  std::string unit{};           // that runs at the peak: "layers.3", or "root"
  int64_t within{}, between{};  // [bytes] received in calls of ranks of one host, and of several
  int64_t flops{};
  std::optional<StepTime> time{};  // if the machine's links and flops are known
};

Plan make_plan(const TrainConfig& config, const ShardLayout& layout, const ModelTraces& traces,
               const Machine& machine);

struct Candidate {
  std::string options;  // "--strategy grad_op --checkpoint-activations all --limit 4"
  TrainConfig config;
  Plan plan;
};

using LayoutOf = std::function<ShardLayout(const TrainConfig& config)>;
using TracesOf = std::function<ModelTraces(const TrainConfig& config, const ShardLayout& layout)>;

// Plans of `base` with every strategy (hybrid: a replica on each host), with activations of no
// block, of every second and of all recomputed, and with a limit of 1, 2 and 4 units. Those whose
// peak is at most `memory` come first, the fastest first (where times are not known, that of the
// lowest peak); then the others, the lowest peak first. Rehearses each way to recompute once.
std::vector<Candidate> search(const TrainConfig& base, const Machine& machine, int64_t memory,
                              const LayoutOf& layout, const TracesOf& traces);

}  // namespace fsdp
