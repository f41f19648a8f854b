#pragma once

#include <hooked_module.h>
#include <sharded_gradients.h>
#include <sharded_leaves.h>
#include <sharded_model.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fsdp {

inline constexpr const char* kFullyShardedDataParallel = "FullyShardedDataParallel";

// Implements ShardedModel: holds the sharded model and the hooks that turn misuse into an error,
// such as a write to a gathered parameter. The hooks of the module own this object. The hooks are
// in sharding_hooks.cpp, the other functions in sharded_model_impl.cpp.
class ShardedModelImpl : public std::enable_shared_from_this<ShardedModelImpl> {
 public:
  static std::shared_ptr<ShardedModelImpl> create(Module& net, std::shared_ptr<Communicator> comm,
                                                  const FullyShardedDataParallelOptions& options);

  FullySharded& sharded() const { return *sharded_; }
  Communicator& comm() const { return *comm_; }
  Module& net() const { return net_; }
  ShardedLeaves& leaves() const { return *leaves_; }
  const std::shared_ptr<ShardedGradients>& gradients() const { return gradients_; }
  const FullyShardedDataParallelOptions& options() const { return options_; }

  // Throws std::logic_error if a parameter was registered after the model was sharded. The error
  // names the parameter.
  void check_parameters() const;

  // Begins a function that all ranks call between steps: reshards every unit, waits until no other
  // rank reads the shards, and copies into the shards the data that the user has given to leaves
  // (tensors of model.parameters()) with set_data(). Throws std::logic_error, which names
  // `function`, inside a module's call, a backward pass or summon_full_params(); and if a parameter
  // was replaced, or registered after the model was sharded.
  void begin(const std::string& function);

  void broadcast_buffers();  // collective: copies rank 0's buffers to every rank

  // Between summon() and end_summon() every unit is unsharded, no other rank reads the shards, and
  // calls of the module throw.
  void summon();
  void end_summon();

  // Throws std::logic_error if a parameter of a unit is no longer a view of the unit's flat tensor.
  // The error names the first such parameter.
  void check_views() const;

 private:
  ShardedModelImpl(Module& net, std::shared_ptr<Communicator> comm,
                   const FullyShardedDataParallelOptions& options)
      : net_(net), comm_(std::move(comm)), options_(options) {}

  void shard(const std::vector<UnitPlan>& plan);
  // Returns the HookedModule of `module` in the list hooked_. If the list has no HookedModule of
  // `module`, first adds one.
  HookedModule& hook(Module& module);

  void register_first_hooks();
  void register_last_hooks();
  void reshard_root_early();
  void before_forward(HookedModule& hooked);
  void begin_forward();
  void end_forward(bool returned);
  void drop_old_casts();
  void after_forward(HookedModule& hooked, bool returned);
  void before_backward(const HookedModule& hooked);
  void end_pass();
  void check_frozen();

  Module& net_;
  std::shared_ptr<Communicator> comm_;
  FullyShardedDataParallelOptions options_;
  std::shared_ptr<FullySharded> sharded_;
  std::shared_ptr<ShardedLeaves> leaves_;
  std::shared_ptr<ShardedGradients> gradients_;
  // The HookedModule of each module that has hooks of this object. Each hook also holds a shared
  // pointer to the HookedModule of its module.
  std::vector<std::shared_ptr<HookedModule>> hooked_;
  std::vector<Module::HookHandle> first_hooks_;
  // All parameters of the model, including those of ignored modules.
  std::set<at::TensorImpl*> parameters_;
  // The calls of modules with hooks of this object that have begun and not ended, each as
  // Module::current_call() names it.
  std::vector<const void*> calls_;
  bool summoned_{};     // whether the program is between summon() and end_summon()
  bool has_trained_{};  // whether any forward that records gradients has begun so far
  // requires_grad of each parameter, in the order of leaves_->entries(), when the ranks last
  // compared these values.
  std::vector<bool> agreed_;
  // Says whether autocast's cache can have casts that an earlier forward made.
  bool casts_may_be_old_{};
};

}  // namespace fsdp
