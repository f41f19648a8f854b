#pragma once

#include <fully_shard.h>
#include <no_sync.h>
#include <norms.h>
#include <state_dict.h>
#include <this_ranks_part.h>
#include <wrap_policy.h>

#include <torch/ordered_dict.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace fsdp {

struct FullyShardedDataParallelOptions {
  WrapPolicy wrap{};  // selects the modules that become units; null: wrap_blocks()
  // reshard_after_forward, limit, materialize and ignored are as in FullyShardOptions. `limit`
  // counts units: if each module has parameters of two dtypes, it has two units, and a limit of 3
  // gathers the next module ahead as a whole.
  bool reshard_after_forward{true};
  int limit{2};
  FlatParameter::Materialize materialize{};
  std::vector<torch::nn::Module*> ignored{};
  // The dtypes of every unit's all-gathers and reductions, for a model whose parameters are all
  // fp32. In a model that has parameters in bf16 or fp16, each parameter is gathered and reduced in
  // its own dtype, and another policy than the default is an error.
  MixedPrecisionPolicy mixed_precision{};
  // Cast the root's input to param_dtype if it is floating-point. If the root is a ModuleOf, cast
  // only the one input that its hooks see.
  bool cast_forward_inputs{true};
  bool sync_module_states{};  // start with rank 0's parameters and buffers on every rank
  bool broadcast_buffers{};  // copy rank 0's buffers to every rank before each forward, as DDP does
};

class ShardedOptimizer;
struct ModelState;

struct SummonOptions {
  // true: what `body`, the function that summon_full_params() calls, writes to the parameters stays
  // in the model. false: it is discarded.
  bool writeback{true};
};

class ShardedModelImpl;

// The part of FullyShardedDataParallel that does not depend on the module's type.
// - "Collective": all ranks call the function together, between steps, so not inside a module's
//   call or a backward pass.
// - Outside module calls and backward passes, no rank reads the shards of another rank. So torch's
//   optimizers may change the shards, and so may you.
// - A parameter is fp32, bf16 or fp16. Its shard, its leaf in parameters(), its gradient and an
//   optimizer's moments have its dtype; there is no fp32 copy. A sum over ranks and its division
//   are fp32 (but see Communicator::reduce_scatter_into() for NCCL), and the mean is rounded once.
//   A module whose parameters have several dtypes has a unit, and so an all-gather and a
//   reduce-scatter, for each dtype (docs/library.md).
class ShardedModel {
 public:
  // Collective. Shards `net` in place. `net` must outlive this object; if a shared_ptr owns `net`,
  // this object keeps it alive. The hooks stay on `net` as long as it lives. Warns with TORCH_WARN
  // on rank 0 if `wrap` selects no module, unless it is wrap_none() or wrap_by_hand().
  //
  // Throws std::invalid_argument, and leaves the model unsharded and without hooks (with
  // sync_module_states it may have rank 0's values already), if
  // - the model is sharded already, or parameters or buffers share memory;
  // - a parameter outside of ignored modules is not fp32, bf16 or fp16;
  // - .mixed_precision is set and a parameter outside of ignored modules is not fp32;
  // - fully_shard() refuses the model or an option, or a unit lies in a torch::nn::Sequential;
  // - models or options differ between ranks; the message names the first parameter, buffer or
  //   option that differs, and the ranks.
  ShardedModel(Module& net, std::shared_ptr<Communicator> comm,
               const FullyShardedDataParallelOptions& options);
  // A ShardedModel cannot be copied, because the copy would share the shards of `net`.
  ShardedModel(const ShardedModel&) = delete;

  FullySharded& fully_sharded() const;
  const std::vector<std::shared_ptr<FlatParameter>>& units() const;

  // Returns this rank's part of each distinct parameter, for torch::optim: leaf tensors, views of
  // the shards, in the order of net.parameters(). A leaf has the sizes [1, ..., 1, n], with as many
  // dimensions as its parameter, but at least one. It is empty if this rank owns no element of the
  // parameter. On one rank, it has the sizes of its parameter.
  // - From the first call on, gradients are in .grad of these leaves, including those of earlier
  //   backward passes. The units then hold none, so a ShardedOptimizer finds none.
  // - Hooks that you register on the leaves are called.
  // - A frozen parameter gets no gradient. Freeze it through its leaf or through the module, and
  //   unfreeze it in the same place; the other one follows at the next forward or parameters().
  // - A trainable parameter that gets no gradient in a backward pass has zeros, as in PyTorch's
  //   FSDP.
  // - Between steps you may write to the leaves by any means.
  // - All of torch's optimizers give the bits of one process. For LBFGS the closure has to return
  //   the same loss on every rank: the mean over ranks.
  //
  // Throws std::logic_error if a parameter was registered after the model was sharded.
  //
  // On two or more ranks, operators on the leaves, their gradients, and all tensors that are
  // computed from them give what they give for whole tensors, or throw std::logic_error
  // (docs/what_works.md has a table):
  // - operators that compute element by element run on the part;
  // - reductions, such as norm(), sum() or isfinite().all(), are collective: they gather the whole
  //   tensor, and give the bits of one process on every rank;
  // - other operators, such as p[0] or matmul(), throw. full_tensor(tensor) is the whole tensor,
  //   and this_ranks_part(tensor) is the part as a plain tensor.
  std::vector<at::Tensor> parameters();
  // Returns the tensors of parameters(), each under the name of its parameter; if a parameter has
  // several names, under the first one.
  torch::OrderedDict<std::string, at::Tensor> named_parameters();
  void zero_grad();  // drops the gradients of all sharded parameters, also those not yet reduced

  // Collective. Scales the gradients so that their norm over all sharded parameters and all ranks
  // is at most max_norm. Returns the norm before scaling, the same on every rank. Parameters of
  // ignored modules do not count. (torch::nn::utils::clip_grad_norm_ of parameters() works too, but
  // gathers every gradient.)
  // Throws what check_norm_type() throws, and std::logic_error if a gradient of parameters() has
  // not been reduced.
  double clip_grad_norm_(double max_norm, double norm_type = 2);  // NOLINT: PyTorch's name

  // Collective: an all-reduce of 8 bytes, and another one between replicas. Returns, on every rank,
  // whether no gradient has a NaN or an infinity on any rank. Parameters of ignored modules count
  // too. A parameter without a gradient, such as a frozen one, counts as finite.
  bool gradients_are_finite();

  // Collective: one all-gather, of 8 bytes for each parameter, and, unless norm_type is infinite,
  // one all-reduce, of 160 bytes for each parameter. param_norms() returns the p-norm of each whole
  // parameter, grad_norms() that of each whole gradient. The key is the parameter's name; if it has
  // several names, the first one. Use the norms for LARS, LAMB, max-norm, or a log.
  // - A norm is the same on every rank, and has the same bits for every number of ranks and with
  //   DistributedDataParallel: nothing is rounded before the end (optim/p_norm.h). So the last bits
  //   can differ from those of torch's norm().
  // - grad_norms() leaves out a parameter that has no gradient on any rank.
  // Throw what check_norm_type() throws.
  Norms param_norms(double norm_type = 2);
  Norms grad_norms(double norm_type = 2);

  // Returns a scope in which backward passes reduce nothing; see no_sync.h. After a backward pass
  // in the scope, reading a gradient of parameters() throws until a backward pass outside it has
  // ended.
  NoSync no_sync();

  // Collective. While `body` runs, all parameters of the module are whole: read them, or write the
  // same values on every rank under torch::NoGradGuard.
  // Throws std::invalid_argument if ranks write different values (with writeback off they are
  // discarded, not compared). Throws std::logic_error if `body` writes to model.parameters() or
  // calls the module. After an exception, what `body` wrote to the module's parameters is
  // discarded.
  void summon_full_params(const std::function<void()>& body, const SummonOptions& options = {});

  // Collective. Returns tensors on the CPU, with memory of their own, under every name that
  // net.named_parameters() and net.named_buffers() have. Sharded parameters are whole, and each has
  // its own dtype (fp32 with mixed_precision). With rank0_only, only rank 0 of each replica gets
  // them; the other ranks get an empty StateDict. Gathers one unit at a time.
  // Throws std::invalid_argument if buffers, parameters of ignored modules, or parameters of
  // replicas differ between ranks, and std::logic_error if another object has sharded a parameter
  // of an ignored module. For buffers, see average_buffers(); with broadcast_buffers on, rank 0's
  // are used.
  StateDict state_dict(bool rank0_only = false);
  // Collective; every rank passes the same state. Loads parameters and buffers, each rounded to its
  // dtype in the model.
  // Throws on every rank, before anything changes: std::runtime_error if a name is missing or
  // unexpected, if a shape does not fit, if floating-point and other numbers are mixed up, or if a
  // tied parameter has two values; std::invalid_argument if `state` differs between ranks.
  void load_state_dict(const StateDict& state);

  // Collective. These functions save and load the whole state of a torch optimizer over
  // parameters(), by name: "NAME/KEY" for each parameter, and "param_groups", a text that describes
  // the groups. A process without sharding, or another number of ranks, can load it, with the
  // groups in any order.
  // Throw on every rank, before anything changes:
  // - std::runtime_error if the optimizer is LBFGS or holds tensors that are not in parameters();
  // - std::invalid_argument if the optimizers differ between ranks, as check_optimizer() does; on
  //   loading, only their classes and groups are compared;
  // - on loading, std::runtime_error if `state` lacks a name or has an unexpected one, if it was
  //   saved from another class of optimizer, or if the optimizer's groups have other parameters
  //   than the saved groups.
  StateDict optim_state_dict(torch::optim::Optimizer& optimizer);
  void load_optim_state_dict(torch::optim::Optimizer& optimizer, const StateDict& state);

  // Collective. Returns what save_checkpoint() and load_checkpoint() take (docs/checkpoints.md):
  // the parameters and the state of a ShardedOptimizer over units(), buffers, and parameters of
  // ignored modules, as views.
  // Throws what state_dict() throws for buffers and parameters of ignored modules,
  // std::invalid_argument if one of them is not contiguous, and std::logic_error if a sharded
  // parameter is not fp32 (a ShardedOptimizer throws for its unit too): save state_dict() and
  // optim_state_dict() then.
  ModelState checkpoint_state(ShardedOptimizer& optimizer);

  // Collective: a few small all-gathers. Call it for example once an epoch, after a scheduler's
  // step. Warns with TORCH_WARN on rank 0 if a group has no parameters; optim_state_dict() warns
  // too.
  // Throws std::invalid_argument if groups, an option or numbers of steps differ between ranks,
  // which training itself does not notice; std::runtime_error for optimizers that
  // optim_state_dict() refuses.
  void check_optimizer(torch::optim::Optimizer& optimizer);

  // Collective. Replaces each floating-point buffer by its mean over all ranks, and every other
  // buffer by rank 0's.
  void average_buffers();

 private:
  std::shared_ptr<torch::nn::Module> owner_;  // keeps `net` alive; null if no shared_ptr owns it
  std::shared_ptr<ShardedModelImpl> sharding_;
};

}  // namespace fsdp
