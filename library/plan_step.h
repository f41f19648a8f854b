#pragma once

#include <memory/live_bytes.h>
#include <nn/module.h>
#include <optim/mixed_precision.h>
#include <optim/update_rule.h>
#include <wrap_policy.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// The options with which the model would be sharded and trained. `wrap`, `reshard_after_forward`,
// `limit` and `mixed_precision` are as in FullyShardedDataParallelOptions.
struct PlanOptions {
  int world_size{8};
  int shard_size{0};  // number of ranks of a replica; 0: all ranks are one replica
  WrapPolicy wrap{wrap_blocks()};
  bool reshard_after_forward{true};
  int limit{2};
  MixedPrecisionPolicy mixed_precision{};
  OptimizerOptions optimizer{};  // the optimizer and its options; AdamW or SGD, not Muon
};

// The cost of a step on rank 0, from the second step on. Buffers of transports are not counted.
struct PlannedStep {
  // For each phase: the highest live bytes of each memory class, and of all classes together.
  std::array<LiveBytes, kPhases> peaks;
  // The live bytes, by memory class and in total, at the moment of the step at which their total is
  // highest.
  LiveBytes at_peak;
  // The phase of the step in which the total of live bytes is highest.
  Phase phase{};
  // Name of the unit whose module runs when the total of live bytes is highest: "layers.3", or
  // "root".
  std::string unit;
  // Number of bytes that rank 0 receives in the collectives of the step.
  int64_t received_bytes{};
  // Number of floating-point operations of the step's matrix products and attention on rank 0.
  int64_t flops{};
};

// Plans the training of the model that `build` makes, with one forward and backward pass on the
// meta device. It needs no ranks, and no memory for the model. `inputs` are those of one rank's
// microbatch. `loss` gets them on the meta device, and calls the model on them; a tensor that
// `loss` makes itself must be on their device. Throws std::runtime_error, which names the operator,
// if the model calls an operator that has no meta kernel, and std::invalid_argument, which names
// the parameter, if a parameter is not fp32.
PlannedStep plan_step(const std::function<std::shared_ptr<Module>()>& build,
                      const std::function<at::Tensor(Module&, std::vector<at::Tensor>)>& loss,
                      const std::vector<at::Tensor>& inputs, const PlanOptions& options = {});

// Plans a model of class Net, which `build` returns and `loss` takes.
template <class Net>
PlannedStep plan_step(const std::function<std::shared_ptr<Net>()>& build,
                      const std::function<at::Tensor(Net&, std::vector<at::Tensor>)>& loss,
                      const std::vector<at::Tensor>& inputs, const PlanOptions& options = {}) {
  const auto call = [&loss](Module& model, std::vector<at::Tensor> of_part) {
    return loss(dynamic_cast<Net&>(model), std::move(of_part));
  };
  return plan_step([&build]() -> std::shared_ptr<Module> { return build(); }, call, inputs,
                   options);
}

}  // namespace fsdp
