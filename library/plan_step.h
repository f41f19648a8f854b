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
  int shard_size{0};  // number of ranks in a replica; 0: all ranks
  WrapPolicy wrap{wrap_blocks()};
  bool reshard_after_forward{true};
  int limit{2};
  MixedPrecisionPolicy mixed_precision{};
  OptimizerOptions optimizer{};  // AdamW or SGD
};

// The cost of a step on rank 0, from the second step on. Buffers of transports are not counted.
struct PlannedStep {
  // For each phase: the highest live bytes of each memory class, and of all classes together.
  std::array<LiveBytes, kPhases> peaks;
  LiveBytes at_peak;         // live bytes when they are highest in the step
  Phase phase{};             // the phase in which the live bytes are highest
  std::string unit;          // the unit whose module runs then: "layers.3", or "root"
  int64_t received_bytes{};  // bytes that the rank receives in collectives
  int64_t flops{};           // operations of matrix products and attention
};

// Plans the training of the model that `build` makes, with one forward and backward pass on the
// meta device. It needs no ranks, and no memory for the model. `inputs` are those of one rank's
// microbatch. `loss` gets them on the meta device, and calls the model on them; a tensor that
// `loss` makes itself must be on their device. Throws std::runtime_error, which names the operator,
// if the model calls an operator that has no meta kernel.
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
