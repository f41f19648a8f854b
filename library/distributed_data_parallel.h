#pragma once

#include <replicated_model.h>

#include <concepts>
#include <memory>
#include <utility>

namespace fsdp {

// PyTorch's DistributedDataParallel: every rank has the whole model, and gradients are reduced in
// buckets during the backward pass. Use it as you use FullyShardedDataParallel;
// docs/ddp_and_fsdp.md compares the two. replicated_model.h documents the functions of the base
// class ReplicatedModel.
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
