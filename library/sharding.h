#pragma once

#include <fully_sharded_data_parallel.h>
#include <sharded_gradients.h>
#include <sharded_leaves.h>
#include <unrecorded_calls.h>

#include <c10/core/Storage.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fsdp {

// [padded / W] Of a unit that is unsharded: what the others have read of this rank's shard.
at::Tensor own_part(const FlatParameter& unit);

// What FullyShardedDataParallel is made of: the sharded model, and the hooks by which nothing that
// it does is silent. The hooks of the module own it.
class Sharding : public std::enable_shared_from_this<Sharding> {
 public:
  static std::shared_ptr<Sharding> create(Module& net, std::shared_ptr<Communicator> comm,
                                          const FullyShardedDataParallelOptions& options);

  FullySharded& sharded() const { return *sharded_; }
  Communicator& comm() const { return *comm_; }
  Module& net() const { return net_; }
  ShardedLeaves& leaves() const { return *leaves_; }
  const std::shared_ptr<ShardedGradients>& gradients() const { return gradients_; }
  const FullyShardedDataParallelOptions& options() const { return options_; }

  // Throws std::logic_error naming a parameter that was registered after the model was sharded.
  void check_parameters() const;

  // For functions that are no part of a step. Throws std::logic_error naming `function` inside a
  // module's call, a backward pass or summon_full_params(), and if a parameter was replaced or is
  // new. Reshards every unit, and waits until no other rank reads the shards.
  void begin(const std::string& function);

  void broadcast_buffers();  // collective: rank 0's, to all ranks

  // Between these two every unit is unsharded, no other rank reads the shards, and calls of the
  // module are refused.
  void summon();
  void end_summon();

  // Throws std::logic_error naming the first parameter of a unit that no longer is a view of its
  // flat tensor.
  void check_views() const;

 private:
  Sharding(Module& net, std::shared_ptr<Communicator> comm,
           const FullyShardedDataParallelOptions& options)
      : net_(net), comm_(std::move(comm)), options_(options) {}

  // A module that has hooks: the root, and those of units.
  struct Watched {
    Module* module{};
    std::shared_ptr<FlatParameter> unit{};  // null: the root, if it has no parameter of its own
    c10::Storage storage{};                 // of the unit's flat tensor
    std::optional<uint32_t> in_forward{};   // the shard's version at the end of its last forward
    // Of its parameters, which nobody may write to; empty: to be read before its next forward.
    std::vector<uint32_t> versions{};
    UnrecordedCalls unrecorded{};
    int64_t calls{};  // under way
    // What the guard says, by Situation. They are empty if the unit has no elements to guard.
    std::array<std::string, 3> messages{};
  };

  // When a parameter of a unit that is sharded is read.
  enum class Situation { not_called, called, in_backward };

  void shard(const std::vector<UnitPlan>& plan);
  void register_first_hooks();
  void register_last_hooks();
  void guard_units();
  static void say_what_to_do(const Watched& watched, Situation situation);
  void before_forward(Watched& watched);
  void begin_forward();
  void end_forward(bool returned);
  void drop_old_casts();
  void after_forward(Watched& watched, bool returned);
  void before_backward(const Watched& watched);
  void end_pass();
  void check_views(const Watched& watched) const;
  static void check_unwritten(Watched& watched);
  void check_frozen();

  Module& net_;
  std::shared_ptr<Communicator> comm_;
  FullyShardedDataParallelOptions options_;
  std::shared_ptr<FullySharded> sharded_;
  std::shared_ptr<ShardedLeaves> leaves_;
  std::shared_ptr<ShardedGradients> gradients_;
  std::vector<std::shared_ptr<Watched>> watched_;  // shared with the hooks
  std::vector<Module::HookHandle> first_hooks_;
  std::set<at::TensorImpl*> parameters_;  // of the model, ignored ones too
  std::vector<const void*> calls_;        // of watched modules, under way
  bool summoned_{};
  bool has_trained_{};        // a forward that records gradients has begun
  std::vector<bool> agreed_;  // requires_grad of each entry, when ranks compared it last
  bool casts_may_be_old_{};   // those of autocast's cache
};

// Collective. Of the parts `own` of tensors that are cut as their parameters, by entry and key: the
// whole ones, by "NAME/KEY".
std::map<std::string, at::Tensor> gather(
    const Sharding& sharding, const std::map<size_t, std::map<std::string, at::Tensor>>& own);

}  // namespace fsdp
