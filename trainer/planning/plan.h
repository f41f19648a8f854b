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
  // The links of one rank to the ranks of its host, and to those of other hosts; empty: unknown.
  std::optional<Link> within, between;
  // The number of links to other hosts over which a collective can move its bytes if it runs in a
  // ring through all ranks of a host. It can be more than one, because NCCL cuts such a collective
  // into several rings that leave the host at different ranks.
  int links_of_ring{1};
  double flops{};               // [FLOP/s] of one rank; 0: unknown
  double flops_in_16_bits{};    // [FLOP/s] of one rank if --param-dtype has 16 bits; 0: as `flops`
  std::string backend{"nccl"};  // shm, gloo or nccl: the backend whose buffers are predicted

  double flops_of(const TrainConfig& config) const;
};

// The cost of one phase of a step on rank 0. The collectives are those that units issue in the
// phase, without the all-reduce of the loss and those for the norm of the gradients. The times [ns]
// are 0 unless the plan has a time.
struct PhaseCost {
  int64_t flops{};  // floating-point operations of matrix products and attention
  // The number of collectives, and the number of bytes that rank 0 receives in them.
  int64_t calls{}, received{};
  // [ns] for which rank 0 computes, and for which it waits; unlike `calls`, `waiting` includes the
  // collectives of the loss and the norm.
  int64_t computing{}, waiting{};
  int64_t links{};  // [ns] that the links need to move the bytes of the collectives
};

// The number of bytes that the ranks of one host receive in a step: `within` from ranks of the same
// host, `between` from other hosts. In a call, each rank receives from the rank before it in a ring
// of the ranks that make the call.
struct Traffic {
  int64_t within{}, between{};
};

// The cost of a step on rank 0, from the second step of a run on.
struct Plan : PredictedMemory {
  // The unit whose module runs when most bytes are alive: "layers.3"; "root" also if no module runs
  // at that moment.
  std::string unit{};
  int64_t parameters{};  // number of elements of all parameters of the model
  // Number of bytes that rank 0 receives in calls whose ranks are on one host, and in calls between
  // hosts.
  int64_t within{}, between{};
  Traffic host{};   // traffic of the host that rank 0 is on
  int64_t flops{};  // floating-point operations of matrix products and attention
  // The predicted time of the step; empty unless the machine's links and flops are known.
  std::optional<StepTime> time{};
  std::array<PhaseCost, kPhases> phases{};

  // Returns whether the peak of this plan is at most `memory`, the number of bytes that a rank has.
  bool fits(int64_t memory) const { return peak.bytes.total <= memory; }
};

Plan make_plan(const TrainConfig& config, const ShardLayout& layout, const ModelTraces& traces,
               const Machine& machine);

}  // namespace fsdp
