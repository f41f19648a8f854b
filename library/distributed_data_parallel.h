#pragma once

#include <replicated_model.h>

#include <concepts>
#include <memory>
#include <utility>

namespace fsdp {

// PyTorch's DistributedDataParallel: every rank has the whole model, and gradients are reduced in
// buckets while backward runs. It is used as FullyShardedDataParallel is; docs/ddp_and_fsdp.md
// compares the two. What it can do else is in replicated_model.h.
template <class Net>
class DistributedDataParallel : public ReplicatedModel {
  static_assert(std::derived_from<Net, Module>,
                "DistributedDataParallel takes an fsdp::Module; hookable(module) makes one of a "
                "torch::nn::Module");

 public:
  DistributedDataParallel(Net& net, std::shared_ptr<Communicator> comm,
                          const DistributedDataParallelOptions& options = {})
      : ReplicatedModel(net, std::move(comm), options), module_(net) {}

  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return module_(std::forward<Inputs>(inputs)...);
  }
  Net& module() const { return module_; }

 private:
  Net& module_;
};

}  // namespace fsdp
