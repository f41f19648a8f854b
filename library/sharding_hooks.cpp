#include <ATen/autocast_mode.h>
#include <backward_pass.h>
#include <ignored.h>
#include <memory/storage_guard.h>
#include <model_checks.h>
#include <replicated_model.h>
#include <sharded_model_impl.h>
#include <strategies/root_readers.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

// This file has those functions of ShardedModelImpl that run in hooks, in the order of a step, and
// the checks that they make.
namespace fsdp {
namespace {

// Warns if a parameter in `ignored` is trainable, unless another FullyShardedDataParallel shards it
// or a DistributedDataParallel replicates it: these reduce its gradient.
void warn_if_ignored_ones_train(const std::vector<NamedParameter>& ignored) {
  const auto trains = [](const NamedParameter& one) {
    return one.tensor.requires_grad() && !is_replicated(one.tensor) && !is_freed(one.tensor);
  };
  const auto first = std::ranges::find_if(ignored, trains);
  if (first == ignored.end()) return;
  TORCH_WARN(kFullyShardedDataParallel, ": parameter ", first->name,
             " of an ignored module is trainable, and each rank gets a gradient of its own; "
             "replicate it by DistributedDataParallel, all-reduce it before each step, or freeze "
             "it");
}

}  // namespace

// Registers the hooks that must run before those of fully_shard(). They reshard units that were
// gathered before the shards changed, and then the hooks of fully_shard() gather these units again.
void ShardedModelImpl::register_first_hooks() {
  const at::ScalarType dtype = options_.mixed_precision.param_dtype;
  if (options_.cast_forward_inputs && dtype != at::kFloat) {
    first_hooks_.push_back(
        net_.register_forward_pre_hook([dtype](Module&, const at::Tensor& input) {
          const bool fits = input.defined() && input.is_floating_point();
          return fits ? input.to(dtype) : at::Tensor();
        }));
  }
  for (const auto& hooked : hooked_) {
    first_hooks_.push_back(hooked->module().register_forward_pre_hook(
        [self = shared_from_this(), hooked](Module&, const at::Tensor&) {
          self->before_forward(*hooked);
          return at::Tensor();
        }));
    first_hooks_.push_back(hooked->module().register_full_backward_pre_hook(
        [self = shared_from_this(), hooked](Module&) { self->before_backward(*hooked); }));
  }
}

// Registers the hooks that must run after those of fully_shard(), when units are resharded and
// gathers have ended.
void ShardedModelImpl::register_last_hooks() {
  for (const auto& hooked : hooked_) {
    hooked->module().register_forward_hook(
        [self = shared_from_this(), hooked](Module&, const at::Tensor& output) {
          self->after_forward(*hooked, output.defined());
          return at::Tensor();
        },
        /*always_call=*/true);
  }
  // The callback has only a weak pointer to this object, because this object owns the backward
  // hooks, which own the callback.
  sharded_->backward_hooks()->on_end(
      [weak = weak_from_this(), prefetcher = sharded_->prefetcher()] {
        prefetcher->end_backward();
        if (const auto alive = weak.lock()) alive->end_pass();
      });
}

// If the model derives from ReadsInCalls, lets backward reshard the root's units as soon as nothing
// reads them any more: such a model promises that this moment can be known. root_readers.h lists
// the other conditions, and the passes that reshard the root only at their end. A read after the
// reshard breaks the promise, and throws.
void ShardedModelImpl::reshard_root_early() {
  const auto is_root = [&](const auto& one) { return &one->module() == &net_; };
  when_root_is_unread(net_, sharded_->layout(), [root = *std::ranges::find_if(hooked_, is_root)] {
    root->reshard();
    root->say_what_to_do(HookedModule::Situation::in_backward);
  });
}

void ShardedModelImpl::before_forward(HookedModule& hooked) {
  calls_.push_back(hooked.module().current_call());
  if (summoned_) {
    throw std::logic_error(hooked.module().name() +
                           ": called inside summon_full_params(); call the module outside of it");
  }
  if (calls_.size() == 1 && !gradients_->pass_is_under_way()) begin_forward();
  if (!hooked.has_unit()) return;
  ++hooked.calls;
  hooked.say_what_to_do(HookedModule::Situation::called);
  hooked.check_views();
  hooked.check_unwritten();
}

// Prepares the outermost call of a hooked module. A unit that is gathered now was gathered before
// this call, because it waits for its backward or because a pass threw, so its values may be old.
// No counter of this rank shows whether another rank has changed its shard, so all units are
// resharded, and gathered again.
void ShardedModelImpl::begin_forward() {
  if (!in_backward()) {
    run_deferred_failures();
    if (at::GradMode::is_enabled())
      for (const auto& hooked : hooked_)
        hooked->unrecorded.forget();
  }
  drop_old_casts();
  leaves_->copy_data_to_shards();
  for (const auto& unit : sharded_->units())
    unit->reshard();
  check_parameters();
  check_frozen();
  gradients_->disarm_traps();
  if (options_.broadcast_buffers) broadcast_buffers();
  // The warning about trainable parameters of ignored modules comes only in the first training
  // forward, because an ignored module may be replicated after the other modules are sharded.
  if (at::GradMode::is_enabled() && !std::exchange(has_trained_, true) && comm_->global_rank() == 0)
    warn_if_ignored_ones_train(ignored_parameters(net_, *sharded_));
}

// Runs at the end of each call of a hooked module. If the call did not reach before_forward(),
// because an earlier hook threw, does nothing.
void ShardedModelImpl::after_forward(HookedModule& hooked, bool returned) {
  if (std::erase(calls_, hooked.module().current_call()) == 0) return;
  if (hooked.calls > 0) {
    --hooked.calls;
    if (hooked.calls == 0) hooked.say_what_to_do(HookedModule::Situation::not_called);
  }
  if (at::GradMode::is_enabled()) hooked.end_forward();
  if (returned && hooked.unrecorded.run_again()) gradients_->on_backward_begin();
  if (calls_.empty() && !gradients_->pass_is_under_way()) end_forward(returned);
  if (returned) hooked.check_unwritten();
}

// Runs when the outermost call of a hooked module has ended. `returned` is false if the call threw,
// which it may have done on this rank only. The other ranks issue all collectives that this rank
// has issued before, so all-gathers under way can be waited for. But other ranks may not come to
// the end of this forward, so this rank does not wait for them as readers.
void ShardedModelImpl::end_forward(bool returned) {
  for (const auto& unit : sharded_->units())
    if (unit->state() == UnitState::gathering) unit->reshard();
  gradients_->arm_traps();
  if (!at::GradMode::is_enabled()) casts_may_be_old_ = true;
  if (returned) comm_->wait_for_readers();
}

// Under autocast, LibTorch caches the casts of parameters until clear_cache() is called. A later
// forward must not use a cast of an earlier one. Such a cast is a node of the graph outside the
// unit's call, so its gradient would arrive after the unit is reduced, and it may have the values
// that the parameter had before an optimizer's step.
void ShardedModelImpl::drop_old_casts() {
  const auto device = comm_->device();
  if (!casts_may_be_old_ || !at::autocast::is_autocast_enabled(device)) return;
  at::autocast::clear_cache();
  casts_may_be_old_ = false;
}

void ShardedModelImpl::before_backward(const HookedModule& hooked) {
  if (!hooked.has_unit()) return;
  if (at::GradMode::is_enabled()) {
    throw std::logic_error("backward: unit " + hooked.name_of_unit() +
                           " is sharded, so backward cannot be differentiated: create_graph "
                           "has to be off");
  }
  gradients_->on_backward_begin();
  hooked.check_unchanged();
  if (!hooked.module().reads_parameters_in_backward())
    hooked.say_what_to_do(HookedModule::Situation::in_backward);
}

// BackwardHooks calls this function at the end of each backward pass, and also when the next
// forward or backward notices that a pass threw. If a forward notices it, `gradients_` has broken
// off that pass already, and this function does nothing. If a backward notices it, `gradients_` has
// already begun the new pass: this function ends it, and the next on_backward_begin() begins it
// again.
void ShardedModelImpl::end_pass() {
  if (!gradients_->pass_is_under_way()) return;
  casts_may_be_old_ = true;
  for (const auto& hooked : hooked_) {
    const bool is_root = &hooked->module() == &net_;
    if ((is_root || !hooked->module().reads_parameters_in_backward()) && hooked->calls == 0)
      hooked->say_what_to_do(HookedModule::Situation::not_called);
  }
  // Waits until no other rank reads this rank's shards, because end_pass() calls the hooks that the
  // user has registered on the leaves (the tensors of model.parameters()), and these hooks may
  // write to the shards.
  comm_->wait_for_readers();
  gradients_->end_pass();
}

// Throws if ranks freeze different parameters, because a parameter that only some ranks train would
// get only a part of its gradient.
void ShardedModelImpl::check_frozen() {
  leaves_->sync_requires_grad();
  const std::vector<bool> now = leaves_->requires_grad();
  if (now == agreed_) return;
  const auto changed = std::ranges::mismatch(now, agreed_).in1 - now.begin();
  // A rank on which no parameter was frozen or unfrozen does not issue this collective, but its own
  // next one. The error about the two different collectives then has the text `call`, which
  // explains why this rank has issued this collective.
  const std::string call =
      "set_requires_grad() of " + leaves_->entries()[static_cast<size_t>(changed)].name;
  const CallerScope caller(call.c_str());
  std::vector<RankInvariant> invariants;
  for (const auto& entry : leaves_->entries())
    invariants.push_back(
        {"parameter " + entry.name, entry.requires_grad ? "trainable" : "frozen", kFreezeTheSame});
  check_same_on_all_ranks(*comm_, invariants, kFullyShardedDataParallel);
  agreed_ = now;
}

}  // namespace fsdp
