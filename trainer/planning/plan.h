#pragma once

#include <prediction/prediction.h>
#include <prediction/step_time.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// The hosts, links and processors that the ranks run on.
struct Machine {
  int ranks_per_host{8};
  std::optional<Link> within, between;  // between ranks of one host, and of two hosts
  double flops{};                       // per second, of one rank; 0: unknown
  std::string backend{"nccl"};          // shm, gloo or nccl: the backend whose buffers count
};

// The cost of one phase of a step on rank 0. The collectives are those that units issue in the
// phase, without the all-reduce of the loss and the sums of a norm. The times [ns] are 0 unless the
// plan has a time.
struct PhaseCost {
  int64_t flops{};                 // of matrix products and attention
  int64_t calls{}, received{};     // number of collectives, and [bytes] received in them
  int64_t computing{}, waiting{};  // waiting: also for the loss and a norm
  int64_t links{};                 // that the links need for the collectives
};

// The cost of a step on rank 0, from the second step of a run on.
struct Plan : PredictedMemory {
  std::string unit{};              // the unit whose module runs at the peak: "layers.3", "root"
  int64_t within{}, between{};     // [bytes] received in calls within a host, and between hosts
  int64_t flops{};                 // of matrix products and attention
  std::optional<StepTime> time{};  // empty unless the machine's links and flops are known
  std::array<PhaseCost, kPhases> phases{};
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

// Plans `base` with each combination of
// - every strategy (hybrid: a replica on each host);
// - recomputing the activations of no block, of every second block, and of all blocks;
// - limits of 1, 2 and 4 unsharded units.
// Returns the plans whose peak is at most `memory` first, in the order of their time (of their
// peak, if times are unknown), then the other plans in the order of their peak. Calls `traces` once
// for each way to recompute.
std::vector<Candidate> search(const TrainConfig& base, const Machine& machine, int64_t memory,
                              const LayoutOf& layout, const TracesOf& traces);

}  // namespace fsdp
