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

// The defaults are FullyShardedDataParallel's. In PyTorch's DDP the last two are on.
struct DistributedDataParallelOptions {
  double bucket_cap_mb{25};  // [MiB] of gradients that are reduced together; at least one parameter
  bool sync_module_states{};  // begin with rank 0's parameters and buffers on every rank
  bool broadcast_buffers{};   // rank 0's buffers go to every rank before each forward
};

// What DistributedDataParallel does whatever its module is. "Collective": all ranks call it
// together, between steps.
//
// A backward in which a gradient of the module's output or of a parameter arrives leaves the mean
// over ranks in .grad of every trainable parameter, or adds it to what is there: the bits of
// FullyShardedDataParallel. Who has no gradient on a rank counts as zero. Before it reduces, it
// compares some values of each parameter with the other ranks, each time others: replicas that have
// parted are named, whatever made them part. Refused are create_graph and sparse gradients.
// torch::autograd::grad() reduces nothing, so a gradient penalty is right.
class ReplicatedModel {
 public:
  // Collective. Refuses, with std::invalid_argument and before it changes the model: parameters
  // that are not fp32, have no values, or are sharded or replicated already, and ranks whose models
  // or options differ. `net` must outlive this object, which keeps it if a shared_ptr holds it; the
  // hooks live as long as `net`.
  ReplicatedModel(Module& net, std::shared_ptr<Communicator> comm,
                  const DistributedDataParallelOptions& options);
  ReplicatedModel(const ReplicatedModel&) = delete;  // as ShardedModel

  // The module's own, each once, by its first name: net.parameters() is as good.
  std::vector<at::Tensor> parameters() { return named_parameters().values(); }
  torch::OrderedDict<std::string, at::Tensor> named_parameters();
  void zero_grad();  // drops the gradients, also those of passes that were not reduced

  // Scales the gradients so that their norm is at most max_norm. Returns the norm before; throws
  // what check_norm_type() throws.
  double clip_grad_norm_(double max_norm, double norm_type = 2);  // NOLINT: PyTorch's name

  // As in ShardedModel, and with the same bits. The first is collective: an all-reduce of 8 bytes,
  // and one between replicas. The norms need no collective.
  bool gradients_are_finite();
  Norms param_norms(double norm_type = 2);
  Norms grad_norms(double norm_type = 2);

  // Until the next backward outside of it, whoever reads .grad is refused; after a backward that
  // threw, until gradients are dropped.
  NoSync no_sync();

  // Collective, and as in ShardedModel: what one class has saved, the other loads. The first and
  // the third also throw if ranks differ in a value.
  StateDict state_dict(bool rank0_only = false);
  void load_state_dict(const StateDict& state);
  StateDict optim_state_dict(torch::optim::Optimizer& optimizer);
  void load_optim_state_dict(torch::optim::Optimizer& optimizer, const StateDict& state);
  void check_optimizer(torch::optim::Optimizer& optimizer);
  void average_buffers();

 private:
  void begin(const std::string& function);  // throws std::logic_error inside a backward pass

  Module& net_;
  std::shared_ptr<Communicator> comm_;
  bool broadcast_buffers_;
  std::shared_ptr<torch::nn::Module> owner_;  // `net`; null: no shared_ptr holds it
  std::shared_ptr<Reducer> reducer_;          // shared with the hooks
};

// Whether a ReplicatedModel reduces the gradient of this parameter.
bool is_replicated(const at::Tensor& parameter);

}  // namespace fsdp
