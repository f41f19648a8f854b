#pragma once

#include <comm/communicator.h>
#include <nn/module.h>
#include <no_sync.h>
#include <norms.h>
#include <state_dict.h>
#include <torch/ordered_dict.h>

#include <memory>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace fsdp {

class Reducer;

// The defaults are those of FullyShardedDataParallel: sync_module_states and broadcast_buffers are
// off. In PyTorch's DDP, both options are on, and the first is named init_sync.
struct DistributedDataParallelOptions {
  // [MiB] size of a bucket, whose gradients are reduced together, each in fp32. A bucket has at
  // least one parameter, even if that is larger.
  double bucket_cap_mb{25};
  bool sync_module_states{};  // start with rank 0's parameters and buffers on every rank
  bool broadcast_buffers{};   // copy rank 0's buffers to every rank before each forward
};

// The part of DistributedDataParallel that does not depend on the module's type. "Collective": all
// ranks call the function together, between steps.
//
// Outside no_sync(), a backward pass that reaches the module's output or a parameter
// - first compares a sample of each parameter's values between ranks, in each pass a different
//   sample, and throws std::invalid_argument, which names the parameter, if replicas have diverged;
// - counts a parameter without a gradient on a rank as zero there;
// - puts the mean over ranks into .grad of every trainable parameter, or adds it to the gradient
//   that is already there, and gives the bits of FullyShardedDataParallel;
// - sends gradients in fp32, also those of parameters in bf16 or fp16. Their sum is divided in
//   fp32, and the mean is rounded once to the parameter's dtype;
// - throws std::logic_error if create_graph is on or if a gradient is sparse.
//
// torch::autograd::grad() reduces nothing, so a gradient penalty that is computed with it is right.
class ReplicatedModel {
 public:
  // Collective. Registers the hooks that reduce gradients. `net` must outlive this object; if a
  // shared_ptr owns `net`, this object keeps it alive. The hooks stay on `net` as long as it lives.
  // Throws std::invalid_argument, and leaves the model unchanged, if a parameter is not fp32, bf16
  // or fp16, has no values, or is sharded or replicated already, if .bucket_cap_mb is negative, or
  // if models or options differ between ranks.
  ReplicatedModel(Module& net, std::shared_ptr<Communicator> comm,
                  const DistributedDataParallelOptions& options);
  // A ReplicatedModel cannot be copied, because the copy would share the hooks on `net`.
  ReplicatedModel(const ReplicatedModel&) = delete;

  // parameters() and named_parameters() return the module's own parameters, each once; if a
  // parameter has several names, under the first one. Optimizers can also take net.parameters().
  std::vector<at::Tensor> parameters() { return named_parameters().values(); }
  torch::OrderedDict<std::string, at::Tensor> named_parameters();
  // Drops the gradients of all parameters, also the gradients of no_sync() passes, which have not
  // been reduced.
  void zero_grad();

  // Scales the gradients so that their norm is at most max_norm. Returns the norm before scaling.
  // Not collective: every rank has the whole gradients. Throws what check_norm_type() throws.
  double clip_grad_norm_(double max_norm, double norm_type = 2);  // NOLINT: PyTorch's name

  // gradients_are_finite(), param_norms() and grad_norms() return what ShardedModel's functions of
  // these names return, in the same bits. gradients_are_finite() is collective: an all-reduce of 8
  // bytes, and another one between replicas. The norms need no collective.
  bool gradients_are_finite();
  Norms param_norms(double norm_type = 2);
  Norms grad_norms(double norm_type = 2);

  // Returns a scope in which backward passes reduce nothing; see no_sync.h. After a backward pass
  // in the scope, reading .grad throws until a backward pass outside the scope has ended. After a
  // backward pass that threw, reading .grad throws until the gradients are dropped.
  NoSync no_sync();

  // Collective. The functions from state_dict() to average_buffers() do what ShardedModel's
  // functions of these names do, and each of the two classes loads what the other one has saved.
  // state_dict() and optim_state_dict() also throw if a value differs between ranks.
  StateDict state_dict(bool rank0_only = false);
  void load_state_dict(const StateDict& state);
  StateDict optim_state_dict(torch::optim::Optimizer& optimizer);
  void load_optim_state_dict(torch::optim::Optimizer& optimizer, const StateDict& state);
  void check_optimizer(torch::optim::Optimizer& optimizer);
  void average_buffers();

 private:
  // Call begin() at the start of the public function `function`. Throws std::logic_error, which
  // names `function`, inside a backward pass; throws std::logic_error if a parameter was registered
  // after the model was replicated.
  void begin(const std::string& function);

  Module& net_;
  std::shared_ptr<Communicator> comm_;
  bool broadcast_buffers_;
  std::shared_ptr<torch::nn::Module> owner_;  // keeps `net` alive; null if no shared_ptr owns it
  std::shared_ptr<Reducer> reducer_;          // the hooks of `net` keep the Reducer alive, too
};

// Returns whether a ReplicatedModel reduces the gradient of this parameter.
bool is_replicated(const at::Tensor& parameter);

}  // namespace fsdp
