#include <checkpoint_activations.h>
#include <config/batch_partition.h>
#include <fully_shard.h>
#include <locate.h>
#include <memory/live_bytes.h>
#include <meta_init.h>
#include <separate_frozen.h>
#include <sharded_optimizer.h>
#include <state/gather_flat.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <strategies/fsdp/wrap_option.h>
#include <strategies/microbatch_strategy.h>
#include <strategies/model_device.h>
#include <strategies/offloaded_moments.h>
#include <strategies/root_readers.h>
#include <strategies/scaled_backward.h>
#include <strategies/strategy.h>
#include <strategies/unit_modules.h>
#include <strategies/workload.h>

#include <algorithm>
#include <set>

namespace fsdp {
namespace {

// Returns the filter that selects the parameters of --keep-fp32. Returns null if the option is not
// given, so that a student who has not written keep_in_fp32() can train.
ParameterFilter keep_fp32_of(const TrainConfig& config) {
  if (config.precision.keep_fp32.empty()) return {};
  return [config](const std::string& parameter) { return config.precision.keeps_fp32(parameter); };
}

// Holds a ShardedOptimizer for each unit, instead of one for all units. So the backward pass can
// update one unit at a time, and few units have a sharded gradient at the same time, as in the LOMO
// paper, section 3.2.
class UnitOptimizers {
 public:
  UnitOptimizers(const std::vector<std::shared_ptr<FlatParameter>>& units,
                 const std::vector<ParameterGroup>& groups, std::shared_ptr<Communicator> comm)
      : units_(units), comm_(std::move(comm)) {
    // The optimizers must not wait for readers of the shards. In the backward pass these readers
    // are prefetched all-gathers of other ranks, which would wait in their optimizers too: a
    // deadlock.
    const auto assuming_no_readers = comm_->assuming_no_readers();
    for (const auto& unit : units_)
      optimizers_.push_back(make_sharded_optimizer(std::vector{unit}, groups, assuming_no_readers));
  }

  // Updates each unit whose gradient has been reduced, and drops the unit's gradient. Calls no
  // collective and waits for no rank. It does not need to: when a unit's reduce-scatter has ended,
  // all ranks have waited for the unit's all-gathers, so no rank reads its shards any more.
  void step() {
    for (size_t i = 0; i < units_.size(); ++i) {
      if (!units_[i]->sharded_gradient().defined()) continue;
      optimizers_[i]->step();
      units_[i]->clear_sharded_gradient();
    }
  }

  // Returns what state() of a single ShardedOptimizer for all units would return.
  std::vector<StateRange> state() {
    std::vector<StateRange> ranges;
    for (const auto& optimizer : optimizers_) {
      auto of_unit = optimizer->state();
      std::move(of_unit.begin(), of_unit.end(), std::back_inserter(ranges));
    }
    comm_->wait_for_readers();
    return ranges;
  }

 private:
  std::vector<std::shared_ptr<FlatParameter>> units_;
  std::vector<std::shared_ptr<ShardedOptimizer>> optimizers_;  // one optimizer for each unit
  std::shared_ptr<Communicator> comm_;
};

class FsdpStrategy : public MicrobatchStrategy {
 public:
  FsdpStrategy(const TrainConfig& config, Workload workload, std::shared_ptr<Communicator> comm)
      : MicrobatchStrategy(config, std::move(workload), comm->global_rank()),
        comm_(std::move(comm)),
        rounds_parameters_(config.precision.policy.rounds_parameters()),
        forward_limit_(config.sharding.limit_in_forward()),
        backward_limit_(config.sharding.limit_in_backward()) {
    FullyShardOptions options;
    options.wrap = wrap_policy_of(config.sharding.wrap);
    options.reshard_after_forward = config.sharding.reshard_after_forward;
    options.limit = config.sharding.limit_in_forward();
    options.keep_fp32 = keep_fp32_of(config);
    options.change_plan = separate_frozen;
    if (config.sharding.meta_init) {
      const DeferredInit init([&] { model_ = workload_.build(); });
      options.materialize = [&](const at::Tensor& p) { return init.materialize_tensor(p); };
      sharded_ = fully_shard(*model_, comm_, options);
      // fully_shard() has materialized the parameters; this materializes the buffers.
      init.materialize_module(*model_);
    } else {
      model_ = workload_.build();
      sharded_ = fully_shard(*model_, comm_, options);
    }
    layout_ = sharded_->layout();
    layout_.add_sizes(*model_);
    mark_units_without_unshard_in_backward(*model_, layout_);
    reshard_root_early();
    move_buffers(*model_, comm_->device());
    const auto groups =
        with_state_file(config, layout_, comm_->rank()).optimizer.parameter_groups();
    if (config.optimizer.step_in_backward) {
      unit_optimizers_ = std::make_shared<UnitOptimizers>(sharded_->units(), groups, comm_);
      step_in_backward();
    } else {
      optimizer_ = make_sharded_optimizer(sharded_->units(), groups, comm_);
    }
    if (config.precision.policy != MixedPrecisionPolicy{}) {
      for (const auto& unit : sharded_->units())
        unit->set_mixed_precision(config.precision.policy_of(unit->parameters().front().name));
    }
    if (partition_.reduce_last) sharded_->backward_hooks()->set_requires_gradient_sync(false);
    set_loss_scale(1);
  }

  double clip_grad_norm(double max_norm, double norm_type) override {
    live_bytes::enter(Phase::optimizer);
    // For norm_type 2, calls clip_grad_norm() without norm_type. The overload with norm_type is an
    // extension task, and a student who has not written it can still clip by the 2-norm.
    if (norm_type == 2) return optimizer_->clip_grad_norm(max_norm);
    return optimizer_->clip_grad_norm(max_norm, norm_type);
  }

  void step() override {
    live_bytes::enter(Phase::optimizer);
    // If units are updated in the backward pass, updates here only the units that the pass has
    // not updated.
    if (unit_optimizers_) return unit_optimizers_->step();
    optimizer_->step();
    optimizer_->zero_grad();
  }

  void skip_step() override {
    live_bytes::enter(Phase::optimizer);
    optimizer_->state();  // allocates the optimizer state
    optimizer_->zero_grad();
  }

  // If each rank computes one microbatch, the reduction of a unit sums all microbatches, so the
  // unit itself divides by their number. If a rank computes several, end_microbatches() divides.
  void set_loss_scale(int64_t scale) override {
    loss_scale_ = scale;
    for (const auto& unit : sharded_->units())
      unit->set_gradient_divide_factor(
          partition_.accumulation_steps > 1 ? 1 : partition_.microbatches() * scale);
  }

  // On the first rank of each replica, FullySharded::full_parameters() passes the parameters, which
  // are equal in all replicas. `visit` is called only on global rank 0.
  void full_parameters(const ParameterVisitor& visit) override {
    const auto on_rank_0 = [&](const std::string& name, const at::Tensor& parameter) {
      if (comm_->global_rank() == 0) visit(name, parameter);
    };
    if (rounds_parameters_) return visit_shards(on_rank_0);
    sharded_->full_parameters(on_rank_0);
  }
  std::vector<Owned> owned() const override {
    std::vector<Owned> all;
    for (const auto& parameter : layout_.parameters) {
      const FlatParameter& unit = *sharded_->units()[parameter.unit];
      const int64_t begin = std::max(parameter.offset, unit.shard_offset());
      const int64_t numel =
          std::min(parameter.offset + parameter.numel, unit.shard_offset() + unit.shard_numel()) -
          begin;
      if (numel <= 0) continue;
      const auto part = [&](const at::Tensor& shard) {
        return shard.defined() ? shard.narrow(0, begin - unit.shard_offset(), numel) : shard;
      };
      all.push_back({parameter.name, begin - parameter.offset, part(unit.shard()),
                     parameter.trainable ? part(unit.sharded_gradient()) : at::Tensor()});
    }
    return all;
  }
  Locate locate() const override { return fsdp::locate; }

 private:
  void begin_forward() override { sharded_->prefetcher()->set_limit(forward_limit_); }
  void compute_gradients(const at::Tensor& loss, bool /*begins*/) override {
    sharded_->prefetcher()->set_limit(backward_limit_);
    scaled_backward(loss, loss_scale_);
  }
  void add(TreeSum& sums) override { put_back(sums.fold(gradients())); }
  void end_microbatches() override {
    if (partition_.reduce_last) sharded_->backward_hooks()->sync_gradients();
    if (partition_.accumulation_steps > 1) divide_gradients();
  }
  std::vector<StateRange> ranges() override {
    return unit_optimizers_ ? unit_optimizers_->state() : optimizer_->state();
  }

  // Makes the backward pass reshard the root's parameters as soon as no module reads them any more,
  // and not only at the end of the pass. Registers hooks that run after the hooks of fully_shard().
  void reshard_root_early() const {
    std::vector<std::shared_ptr<FlatParameter>> of_root;
    for (size_t i = 0; i < layout_.units.size(); ++i)
      if (layout_.units[i].root) of_root.push_back(sharded_->units()[i]);
    when_root_is_unread(*model_, layout_, [of_root] {
      for (const auto& unit : of_root)
        unit->reshard();
    });
  }

  // Registers a hook that updates units whenever the backward of a unit's module ends. At that
  // moment, the reduce-scatter of the previous unit has been waited for, so that unit is updated.
  // step() updates the last units of the pass, and units whose input requires no gradient. The
  // hooks run after the hooks of fully_shard().
  void step_in_backward() const {
    for (Module* module : modules_of_units(*model_, layout_))
      if (module != nullptr)
        module->register_full_backward_hook(
            [optimizers = unit_optimizers_](Module&) { optimizers->step(); });
  }

  // Collective. Calls `visit` with each whole parameter in the dtype of the shards.
  // (FullySharded::full_parameters() would round the parameter to param_dtype.) Gathers the flat
  // tensor of a unit again whenever the next parameter lies in another unit than the previous
  // parameter.
  void visit_shards(const ParameterVisitor& visit) const {
    // For each unit, the index in unit.parameters() of the unit's parameter to be visited next.
    std::vector<size_t> next(sharded_->units().size());
    at::Tensor full;  // the gathered flat tensor of the unit whose index is `gathered`
    size_t gathered = next.size();
    for (const auto& parameter : layout_.parameters) {
      const FlatParameter& unit = *sharded_->units()[parameter.unit];
      if (gathered != parameter.unit) {
        full = gather_flat(*comm_, unit.shard(), unit.unit());
        gathered = parameter.unit;
      }
      const auto sizes = unit.parameters()[next[gathered]++].tensor.sizes();
      visit(parameter.name, parameter_in(full, parameter.offset, sizes).cpu());
    }
  }

  // Returns the tensors to which backward adds the gradients of a microbatch: the sharded gradients
  // or, with --reduce-gradients last, the parameters' .grad. Backward adds to them in place, so
  // several microbatches of one partial sum need no more memory for gradients than one microbatch.
  // If a unit or a parameter has no gradient, its tensor is undefined.
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> gradients;
    for (const auto& unit : sharded_->units()) {
      if (!partition_.reduce_last) gradients.push_back(unit->sharded_gradient());
      for (const auto& parameter : unit->parameters())
        if (partition_.reduce_last) gradients.push_back(parameter.tensor.grad());
    }
    return gradients;
  }

  std::vector<at::Tensor> take_sum() override {
    auto taken = gradients();
    for (const auto& unit : sharded_->units()) {
      unit->clear_sharded_gradient();
      for (const auto& parameter : unit->parameters())
        parameter.tensor.mutable_grad().reset();
    }
    return taken;
  }

  // With --reduce-gradients last, stores the running sums in the parameters' .grad, because a
  // parameter without a gradient in this microbatch has its sum only in `sums`, from earlier
  // microbatches. Otherwise does nothing.
  void put_back(const std::vector<at::Tensor>& sums) const {
    if (!partition_.reduce_last) return;
    auto sum = sums.begin();
    for (const auto& unit : sharded_->units())
      for (const auto& parameter : unit->parameters())
        parameter.tensor.mutable_grad() = *sum++;
  }

  void divide_gradients() const {
    const at::NoGradGuard no_grad;
    for (const auto& unit : sharded_->units())
      if (unit->sharded_gradient().defined())
        unit->sharded_gradient().div_(partition_.microbatches() * loss_scale_);
  }

  std::shared_ptr<Communicator> comm_;
  bool rounds_parameters_;
  int forward_limit_, backward_limit_;
  std::shared_ptr<FullySharded> sharded_;
  // The optimizer of all units; null if each unit has its own optimizer.
  std::shared_ptr<ShardedOptimizer> optimizer_;
  // The optimizers of the units, one for each unit; null unless the backward pass updates units.
  std::shared_ptr<UnitOptimizers> unit_optimizers_;
};

}  // namespace

std::unique_ptr<Strategy> make_fsdp_strategy(const TrainConfig& config, Workload workload,
                                             std::shared_ptr<Communicator> comm) {
  return std::make_unique<FsdpStrategy>(config, std::move(workload), std::move(comm));
}

ShardLayout shard_layout(const TrainConfig& config, const Workload& workload) {
  std::shared_ptr<Module> model;
  construct_on_meta([&] { model = workload.build(); });
  auto plan = plan_units(*model, wrap_policy_of(config.sharding.wrap));
  if (const auto keeps = keep_fp32_of(config)) keep_in_fp32(plan, *model, keeps);
  separate_frozen(plan);
  ShardLayout layout = plan_layout(*model, plan, config.shards());
  layout.add_sizes(*model);
  mark_units_without_unshard_in_backward(*model, layout);
  return layout;
}

void checkpoint_blocks(Module& root, int every) {
  std::set<const Module*> blocks;  // a set, so that a block with several names counts once
  for (const auto& module : root.modules(/*include_self=*/false)) {
    auto* block = dynamic_cast<Module*>(module.get());
    if (block == nullptr || !block->name().ends_with("Block")) continue;
    const bool first = blocks.insert(block).second;
    if (first && static_cast<int>(blocks.size()) % every == 0) checkpoint_activations(*block);
  }
}

}  // namespace fsdp
