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
  WrapPolicy wrap{};                 // null: wrap_blocks()
  bool reshard_after_forward{true};  // these four are FullyShardOptions'
  int limit{2};
  FlatParameter::Materialize materialize{};
  std::vector<torch::nn::Module*> ignored{};
  MixedPrecisionPolicy mixed_precision{};  // of every unit
  bool cast_forward_inputs{true};          // to param_dtype: the tensor that hooks of the model see
  bool sync_module_states{};  // begin with rank 0's parameters and buffers on every rank
  bool broadcast_buffers{};   // rank 0's buffers go to every rank before each forward, as in DDP
};

class ShardedOptimizer;
struct ModelState;

struct SummonOptions {
  bool writeback{true};  // what the body writes stays
};

class ShardedModelImpl;

// What FullyShardedDataParallel does whatever its module is. All functions that say "collective"
// are called by all ranks together, between steps: not inside a module's call or a backward pass.
//
// Between calls of modules and backward passes, no rank reads the shards of another. So an
// optimizer of torch's may change them, and so may you.
class ShardedModel {
 public:
  // Collective. Refuses, with std::invalid_argument and before it changes the model: a model that
  // is sharded already, parameters or buffers that share memory, what fully_shard() refuses, and
  // ranks whose models or options differ (the text names the first parameter or buffer that does,
  // and the ranks). Warns by TORCH_WARN if `wrap` chose no module. `net` must outlive this object,
  // which keeps it if a shared_ptr holds it; the hooks live as long as `net`.
  ShardedModel(Module& net, std::shared_ptr<Communicator> comm,
               const FullyShardedDataParallelOptions& options);
  ShardedModel(const ShardedModel&) = delete;  // one owner of the shards

  FullySharded& fully_sharded() const;
  const std::vector<std::shared_ptr<FlatParameter>>& units() const;

  // What this rank owns of each distinct parameter, for torch::optim: leaves, views of the shards,
  // in the order of net.parameters(). They have dim() of their parameter (at least 1), and the
  // sizes [1, ..., 1, n]. Of some parameters a rank owns no element; their tensor is empty. From
  // the first call on, gradients are in their .grad, also those of passes before, and the units
  // keep none (ShardedOptimizer then finds none). Hooks on them are called. A frozen parameter gets
  // none; freeze it here or in the module, and unfreeze it there. A parameter without a gradient in
  // a pass has zeros, as in PyTorch's FSDP. Write to them between steps by any means. Optimizers
  // that compute each element by itself end with the bits of one process: all of torch's but LBFGS.
  //
  // On two or more ranks these tensors, their gradients, and what is computed from them refuse
  // operators that do not compute element by element, with std::logic_error: norm(), sum(),
  // isfinite().all(), p[0], matmul() would be those of this rank's part. The error says what to
  // call instead; this_ranks_part(tensor) is the part as a plain tensor. docs/what_works.md has a
  // table.
  std::vector<at::Tensor> parameters();
  torch::OrderedDict<std::string, at::Tensor> named_parameters();  // the same, by first name
  void zero_grad();  // drops all gradients, as the optimizer's does, and the module's

  // Collective. Scales the gradients so that their norm over all parameters and ranks is at most
  // max_norm. Returns the norm before, the same on every rank. (torch::nn::utils::clip_grad_norm_
  // would take the norm of this rank's part, and is refused.) Throws what check_norm_type() throws.
  double clip_grad_norm_(double max_norm, double norm_type = 2);  // NOLINT: PyTorch's name

  // Collective: an all-reduce of 8 bytes, and one between replicas. Returns, on every rank, whether
  // no gradient has a NaN or an infinity on any rank. Parameters of ignored modules count too. A
  // parameter without a gradient, such as a frozen one, counts as finite.
  bool gradients_are_finite();

  // Collective: an all-gather of 8 bytes and, unless norm_type is infinite, an all-reduce of 160
  // bytes, for each of parameters(). Return the p-norm of each whole parameter or gradient by its
  // first name, the same on every rank, and with the same bits for every number of ranks and with
  // DistributedDataParallel: nothing is rounded before the end (optim/p_norm.h), so torch's norm()
  // may differ in the last bits. For LARS, LAMB, max-norm, or a log. A parameter that has no
  // gradient on any rank is left out. Throw what check_norm_type() throws.
  Norms param_norms(double norm_type = 2);
  Norms grad_norms(double norm_type = 2);

  NoSync no_sync();

  // Collective. In `body` all parameters of the module are whole: read them, or write the same
  // values on every rank under torch::NoGradGuard. Throws if ranks wrote different values, or to
  // model.parameters(). To call the module inside is refused.
  void summon_full_params(const std::function<void()>& body, const SummonOptions& options = {});

  // Collective. Owned tensors on the CPU, under every name that net.named_parameters() and
  // net.named_buffers() have: fp32 parameters, whole, on every rank. With rank0_only the other
  // ranks get an empty one. Refuses buffers and parameters of ignored modules that differ between
  // ranks (see average_buffers(); with broadcast_buffers on, rank 0's are taken), and replicas
  // whose parameters differ. Gathers one unit at a time.
  StateDict state_dict(bool rank0_only = false);
  // Collective. Every rank gives the same. Throws on every rank, before it changes anything: names
  // that are missing or unexpected, shapes, dtypes, values that differ.
  void load_state_dict(const StateDict& state);

  // Collective. The whole state of one of torch's optimizers over parameters(), by name:
  // "NAME/KEY", and "param_groups", a text that says what there is. A process without sharding, or
  // on another number of ranks, may load it, with its groups in any order. Throws on every rank,
  // before anything changes: for LBFGS, for tensors that are not parameters(), what
  // check_optimizer() throws, and on loading if something is missing, unexpected or another
  // optimizer's, or if other parameters form a group.
  StateDict optim_state_dict(torch::optim::Optimizer& optimizer);
  void load_optim_state_dict(torch::optim::Optimizer& optimizer, const StateDict& state);

  // Collective. What save_checkpoint() and load_checkpoint() take (docs/checkpoints.md): the
  // parameters and the state of our own optimizer over units(), buffers, and parameters of ignored
  // modules; the values as views. Throws as state_dict() does where ranks differ in what is whole.
  ModelState checkpoint_state(ShardedOptimizer& optimizer);

  // Collective, for example once an epoch, after a scheduler's step: one small all-gather. Throws
  // std::invalid_argument if the groups, an option, or the numbers of steps differ between ranks,
  // which nothing sees while the model trains. Warns by TORCH_WARN on rank 0 if a group has no
  // parameters, and so does optim_state_dict().
  void check_optimizer(torch::optim::Optimizer& optimizer);

  // Collective. Every rank's floating-point buffers become their mean, the others rank 0's.
  void average_buffers();

 private:
  std::shared_ptr<torch::nn::Module> owner_;  // `net`; null: no shared_ptr holds it
  std::shared_ptr<ShardedModelImpl> sharding_;
};

}  // namespace fsdp
