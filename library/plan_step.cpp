#include <meta_init.h>
#include <plan_step.h>
#include <planning/plan.h>
#include <planning/trace_on_meta.h>
#include <separate_frozen.h>
#include <strategies/model_device.h>
#include <unit_plan.h>

#include <stdexcept>

namespace fsdp {
namespace {

TrainConfig config_of(const PlanOptions& options) {
  TrainConfig config;
  config.ranks.mode = Mode::fsdp;
  config.training.steps = 2;
  config.ranks.world = options.world_size;
  config.sharding.shard_size = options.shard_size;
  config.sharding.reshard_after_forward = options.reshard_after_forward;
  config.sharding.limit = options.limit;
  config.precision.policy = options.mixed_precision;
  static_cast<OptimizerOptions&>(config.optimizer) = options.optimizer;
  return config;
}

// Returns the operator that LibTorch's error message names: "aten::where.self" for
// "aten::where.self: attempted to run this operator with Meta...".
std::string operator_of(const std::string& message) {
  return message.substr(0, message.find(": "));
}

}  // namespace

PlannedStep plan_step(const std::function<std::shared_ptr<Module>()>& build,
                      const std::function<at::Tensor(Module&, std::vector<at::Tensor>)>& loss,
                      const std::vector<at::Tensor>& inputs, const PlanOptions& options) {
  const TrainConfig config = config_of(options);
  std::shared_ptr<Module> model;
  construct_on_meta([&] { model = build(); });
  for (const auto& [name, parameter] : distinct_parameters(*model)) {
    if (parameter.scalar_type() == at::kFloat) continue;
    throw std::invalid_argument(
        "plan_step: parameter " + name + " is " + c10::toString(parameter.scalar_type()) +
        ", and only steps of fp32 parameters are planned; build the model in "
        "fp32, and set .mixed_precision for a step in 16 bits");
  }
  std::vector<UnitPlan> units = plan_units(*model, options.wrap);
  separate_frozen(units);
  const ShardLayout layout = plan_layout(*model, units, config.shards());
  const Workload workload{build, [&](Module& called, int, int, int64_t) {
                            std::vector<at::Tensor> of_part;
                            for (const at::Tensor& input : inputs)
                              of_part.push_back(to_device_of(called, input));
                            return loss(called, of_part);
                          }};
  Plan plan;
  try {
    plan =
        make_plan(config, layout, trace_on_meta(config, workload, layout, construct_on_meta), {});
  } catch (const c10::NotImplementedError& error) {
    throw std::runtime_error("plan_step: " + operator_of(error.what_without_backtrace()) +
                             " has no meta kernel; register one (TORCH_LIBRARY_IMPL(aten, Meta, "
                             "...)), or measure a step with live_bytes");
  }
  PlannedStep step{.peaks = {},
                   .at_peak = plan.peak.bytes,
                   .phase = plan.peak.phase,
                   .unit = plan.unit,
                   .received_bytes = plan.within + plan.between,
                   .flops = plan.flops};
  for (size_t phase = 0; phase < kPhases; ++phase) {
    for (size_t cls = 0; cls < kMemoryClasses; ++cls)
      step.peaks[phase].by_class[cls] = plan.bytes[phase][cls].value_or(0);
    step.peaks[phase].total = plan.totals[phase].value_or(0);
  }
  return step;
}

}  // namespace fsdp
