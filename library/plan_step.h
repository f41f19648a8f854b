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

// How a model would be sharded and trained; each as in FullyShardedDataParallel.
struct PlanOptions {
  int world_size{8};
  int shard_size{0};  // ranks of a replica; 0: all
  WrapPolicy wrap{wrap_blocks()};
  bool reshard_after_forward{true};
  int limit{2};
  MixedPrecisionPolicy mixed_precision{};
  OptimizerOptions optimizer{};  // AdamW or SGD
};

// What a step costs on rank 0, from the second one on. Transports' buffers are not counted.
struct PlannedStep {
  std::array<LiveBytes, kPhases> peaks;  // by phase: of each class, and of all together
  LiveBytes at_peak;                     // when most bytes are alive
  Phase phase{};                         // then
  std::string unit;                      // whose module runs then: "layers.3", or "root"
  int64_t received_bytes{};              // [bytes]
  int64_t flops{};                       // of matrix products and attention
};

// Plans the training of the model that `build` makes, by one forward and backward on the meta
// device: needs no ranks and none of the model's memory. `loss` calls the model on `inputs`, which
// are those of a rank's part; what it makes itself must be on their device. Throws
// std::runtime_error, which names it, if the model calls an operator that has no meta kernel.
PlannedStep plan_step(const std::function<std::shared_ptr<Module>()>& build,
                      const std::function<at::Tensor(Module&, std::vector<at::Tensor>)>& loss,
                      const std::vector<at::Tensor>& inputs, const PlanOptions& options = {});

// The same with the model's own class.
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
