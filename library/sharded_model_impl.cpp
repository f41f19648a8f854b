#include <any_dtype.h>
#include <backward_pass.h>
#include <buffers.h>
#include <check_hookable.h>
#include <ignored.h>
#include <model_checks.h>
#include <separate_dtypes.h>
#include <separate_frozen.h>
#include <sharded_model_impl.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

std::string text_of(const MixedPrecisionPolicy& policy) {
  return std::string(dtype_name(policy.param_dtype)) + ", reduced in " +
         dtype_name(policy.reduce_dtype);
}

void separate_units(std::vector<UnitPlan>& plan) {
  separate_dtypes(plan);
  separate_frozen(plan);
}

// Throws std::invalid_argument if a parameter has a dtype that no unit can have, or with which
// .mixed_precision would not say what the user means.
void check_dtypes(const std::vector<UnitPlan>& plan, const MixedPrecisionPolicy& policy) {
  for (const UnitPlan& unit : plan) {
    check_floating(kFullyShardedDataParallel, unit.parameters);
    for (const auto& [name, parameter] : unit.parameters) {
      if (policy == MixedPrecisionPolicy() || parameter.scalar_type() == at::kFloat) continue;
      throw std::invalid_argument(
          std::string(kFullyShardedDataParallel) +
          ": .mixed_precision needs fp32 parameters, and " + name + " is " +
          dtype_name(parameter.scalar_type()) +
          "; leave the option out, and each parameter is gathered and reduced in its own dtype; or "
          "convert the model with to(torch::kFloat)");
    }
  }
}

void warn_if_nothing_is_chosen(const WrapPolicy& policy, const std::vector<Module*>& chosen) {
  if (!chosen.empty() || policy.target<WrapByHand>() != nullptr) return;
  TORCH_WARN(kFullyShardedDataParallel,
             ": the wrap policy chose no module, so the model is one unit, and is gathered as a "
             "whole; set .wrap, for example to wrap_by_type(\"MyLayer\"), or to wrap_none() if "
             "this is what you want");
}

}  // namespace

std::shared_ptr<ShardedModelImpl> ShardedModelImpl::create(
    Module& net, std::shared_ptr<Communicator> comm,
    const FullyShardedDataParallelOptions& options) {
  const CallerScope caller(kFullyShardedDataParallel);
  check_can_be_sharded(net, options.ignored);
  check_mixed_precision(options.mixed_precision);
  const WrapPolicy policy = options.wrap ? options.wrap : wrap_blocks();
  const std::vector<Module*> chosen = policy(net);
  if (comm->global_rank() == 0) warn_if_nothing_is_chosen(policy, chosen);
  check_hookable(net, chosen);
  auto plan = plan_units(net, wrap_by_hand(chosen), options.ignored);
  separate_units(plan);
  verify_model_across_ranks(
      *comm, net, plan,
      {{".limit", std::to_string(options.limit)},
       {".reshard_after_forward", std::to_string(options.reshard_after_forward)},
       {".mixed_precision", text_of(options.mixed_precision)},
       {".sync_module_states", std::to_string(options.sync_module_states)},
       {".broadcast_buffers", std::to_string(options.broadcast_buffers)}},
      options.sync_module_states, kFullyShardedDataParallel);
  check_dtypes(plan, options.mixed_precision);
  const std::shared_ptr<ShardedModelImpl> sharding(
      new ShardedModelImpl(net, std::move(comm), options));
  // fully_shard() uses the modules that are chosen already, so that the user's policy is called
  // only once.
  sharding->options_.wrap = wrap_by_hand(chosen);
  sharding->shard(plan);
  return sharding;
}

void ShardedModelImpl::shard(const std::vector<UnitPlan>& plan) {
  for (const at::Tensor& parameter : net_.parameters())
    parameters_.insert(parameter.unsafeGetTensorImpl());
  for (const UnitPlan& unit : plan)
    hook(*unit.module);
  hook(net_);
  register_first_hooks();
  try {
    sharded_ = fully_shard(net_, comm_,
                           {.wrap = options_.wrap,
                            .reshard_after_forward = options_.reshard_after_forward,
                            .limit = options_.limit,
                            .materialize = options_.materialize,
                            .ignored = options_.ignored,
                            .change_plan = separate_units,
                            .make_unit = make_flat_parameter_of_any_dtype});
  } catch (...) {
    for (auto& hook : first_hooks_)
      hook.remove();
    throw;
  }
  for (size_t i = 0; i < sharded_->units().size(); ++i) {
    const auto& unit = sharded_->units()[i];
    if (options_.mixed_precision != MixedPrecisionPolicy())
      unit->set_mixed_precision(options_.mixed_precision);
    hook(*plan[i].module).guard(unit);
  }
  leaves_ = std::make_shared<ShardedLeaves>(*sharded_, comm_);
  gradients_ = ShardedGradients::create(*sharded_, leaves_);
  agreed_ = leaves_->requires_grad();
  register_last_hooks();
  reshard_root_early();
}

HookedModule& ShardedModelImpl::hook(Module& module) {
  for (const auto& hooked : hooked_)
    if (&hooked->module() == &module) return *hooked;
  return *hooked_.emplace_back(std::make_shared<HookedModule>(module));
}

void ShardedModelImpl::check_parameters() const {
  for (const auto& parameter : net_.named_parameters()) {
    if (parameters_.contains(parameter.value().unsafeGetTensorImpl())) continue;
    throw std::logic_error("parameter " + parameter.key() +
                           " was registered after the model was sharded, so its gradient would not "
                           "be reduced; build the whole model before");
  }
}

void ShardedModelImpl::check_views() const {
  for (const auto& hooked : hooked_)
    hooked->check_views();
}

void ShardedModelImpl::begin(const std::string& function) {
  if (!calls_.empty() || in_backward() || summoned_) {
    throw std::logic_error(function + "(): called inside " +
                           (summoned_       ? "summon_full_params()"
                            : in_backward() ? "a backward pass"
                                            : "a module's call") +
                           "; call it between steps");
  }
  run_deferred_failures();
  check_views();
  check_parameters();
  for (const auto& unit : sharded_->units())
    unit->reshard();
  comm_->wait_for_readers();
  leaves_->copy_data_to_shards();
}

void ShardedModelImpl::summon() {
  for (const auto& unit : sharded_->units())
    unit->unshard_async();
  for (const auto& unit : sharded_->units())
    unit->unshard();
  comm_->wait_for_readers();
  summoned_ = true;
}

void ShardedModelImpl::end_summon() {
  summoned_ = false;
  for (const auto& hooked : hooked_)
    hooked->allow_writes();
  for (const auto& unit : sharded_->units())
    unit->reshard();
}

void ShardedModelImpl::broadcast_buffers() {
  const CallerScope caller(".broadcast_buffers");
  broadcast_from_rank_0(*comm_, distinct_buffers(net_));
}

}  // namespace fsdp
