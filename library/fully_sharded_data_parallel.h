#pragma once

#include <sharded_model.h>
#include <wrap_marked.h>

#include <concepts>
#include <memory>
#include <utility>

namespace fsdp {

// PyTorch's FullyShardedDataParallel over fully_shard(). Misuse is an error, not a silent wrong
// result: docs/what_works.md lists models and habits, and the few kinds of misuse that the library
// cannot detect. Call the model through this object, or call the module itself as before.
// sharded_model.h documents the functions of the base class ShardedModel.
//
//   FullyShardedDataParallel model(net, comm);
//   torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3));
//   loss(model(x)).backward();
//   optimizer.step();
template <class Net>
class FullyShardedDataParallel : public ShardedModel {
  static_assert(std::derived_from<Net, Module>,
                "FullyShardedDataParallel takes an fsdp::Module; hookable(module) makes one of a "
                "torch::nn::Module");

 public:
  FullyShardedDataParallel(Net& net, std::shared_ptr<Communicator> comm,
                           const FullyShardedDataParallelOptions& options = {})
      : ShardedModel(net, std::move(comm), options), net_(net) {}

  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return net_(std::forward<Inputs>(inputs)...);
  }
  Net& module() const { return net_; }

 private:
  Net& net_;
};

}  // namespace fsdp
