#pragma once

#include <prediction/prediction.h>
#include <prediction/step_time.h>

#include <array>
#include <string>
#include <vector>

namespace fsdp {

// The hosts, links and processors that the ranks run on. Ranks fill one host after another.
struct Machine {
  int ranks_per_host{8};
  std::optional<Link> within, between;  // of a rank, to ranks of its host and of other hosts
  // Links to other hosts that a ring through all ranks of a host has at its disposal, because NCCL
  // cuts a call into rings that leave the host at different ranks.
  int links_of_ring{1};
  double flops{};               // per second, of one rank; 0: unknown
  double flops_in_16_bits{};    // if --param-dtype has 16 bits; 0: as `flops`
  std::string backend{"nccl"};  // shm, gloo or nccl: the backend whose buffers count

  double flops_of(const TrainConfig& config) const;
};

// The cost of one phase of a step on rank 0. The collectives are those that units issue in the
// phase, without the all-reduce of the loss and the sums of a norm. The times [ns] are 0 unless the
// plan has a time.
struct PhaseCost {
  int64_t flops{};                 // of matrix products and attention
  int64_t calls{}, received{};     // number of collectives, and [bytes] received in them
  int64_t computing{}, waiting{};  // waiting: also for the loss and a norm
  int64_t links{};                 // time that the links need for the collectives
};

// [bytes] What the ranks of a host receive in a step from each other, and from other hosts, if each
// rank receives from the rank before it in a ring of the ranks that make the call.
struct Traffic {
  int64_t within{}, between{};
};

// The cost of a step on rank 0, from the second step of a run on.
struct Plan : PredictedMemory {
  // The unit whose module runs at the peak: "layers.3"; "root" also if no module runs then.
  std::string unit{};
  int64_t parameters{};            // [elements] of the model
  int64_t within{}, between{};     // [bytes] received in calls within a host, and between hosts
  Traffic host{};                  // of the host of rank 0
  int64_t flops{};                 // of matrix products and attention
  std::optional<StepTime> time{};  // empty unless the machine's links and flops are known
  std::array<PhaseCost, kPhases> phases{};

  // Returns whether the peak is at most the `memory` [bytes] of a rank.
  bool fits(int64_t memory) const { return peak.bytes.total <= memory; }
};

Plan make_plan(const TrainConfig& config, const ShardLayout& layout, const ModelTraces& traces,
               const Machine& machine);

}  // namespace fsdp
