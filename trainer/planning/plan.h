#pragma once

#include <prediction/prediction.h>
#include <prediction/step_time.h>

#include <string>

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

}  // namespace fsdp
