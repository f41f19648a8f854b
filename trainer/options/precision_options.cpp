#include <command_line/command_line.h>
#include <command_line/usage.h>
#include <options/groups.h>
#include <options/pattern_check.h>

#include <stdexcept>
#include <string>

namespace fsdp {
namespace {

void add_dtype(CLI::App& app, const std::string& name, at::ScalarType& dtype,
               const std::string& help) {
  const std::vector<std::pair<std::string, at::ScalarType>> choices{
      {"fp32", at::kFloat}, {"bf16", at::kBFloat16}, {"fp16", at::kHalf}};
  add_choice(app, name, dtype, choices, help);
}

void check_keep_fp32(const TrainConfig& config) {
  if (config.precision.keep_fp32.empty()) return;
  if (config.precision.policy == MixedPrecisionPolicy{})
    throw UsageError("--keep-fp32: needs --param-dtype or --reduce-dtype");
  check_pattern("--keep-fp32", config.precision.keep_fp32);
}

}  // namespace

void add_precision_options(CLI::App& app, TrainConfig& config, GivenPrecision& given) {
  add_dtype(app, "--param-dtype", config.precision.policy.param_dtype,
            "precision in which parameters are gathered and used to compute (default fp32); the "
            "optimizer's parameters stay fp32");
  add_dtype(app, "--reduce-dtype", config.precision.policy.reduce_dtype,
            "precision in which gradients are sent (default --param-dtype); they are added in "
            "fp32");
  app.add_option("--keep-fp32", config.precision.keep_fp32,
                 "regular expression: parameters whose names match keep fp32, as ln for all norms "
                 "(default: none)")
      ->type_name("PATTERN");
  app.add_option(
         "--loss-scale", given.loss_scale,
         "power of two by which the loss is multiplied at first, or none; it is halved when "
         "gradients overflow (default 65536 with fp16, else none)")
      ->type_name("INT|none");
  add_number(app, "--growth-interval", given.growth_interval, NumberRange<int64_t>{1, kMany},
             "steps without overflow after which the loss scale is doubled (default 2000)");
}

void resolve_precision(const CLI::App& app, TrainConfig& config, const GivenPrecision& given) {
  MixedPrecisionPolicy& precision = config.precision.policy;
  const auto& [loss_scale, growth_interval] = given;
  if (app.count("--reduce-dtype") == 0) precision.reduce_dtype = precision.param_dtype;
  if (precision != MixedPrecisionPolicy{} && config.batch_partition().accumulation_steps > 1 &&
      config.training.reduce_gradients == ReduceGradients::last) {
    throw UsageError(
        "--reduce-gradients last: does not support mixed precision; give --reduce-gradients each, or "
        "--param-dtype fp32 and --reduce-dtype fp32");
  }
  check_keep_fp32(config);
  const bool fp16 = precision.param_dtype == at::kHalf || precision.reduce_dtype == at::kHalf;
  if (loss_scale == "none" || (!loss_scale && !fp16)) {
    if (growth_interval) throw UsageError("--growth-interval: needs --loss-scale");
    config.precision.loss_scaler.reset();
    return;
  }
  // The loss scaler of the checkpoint, if the run resumes from one that has a loss scaler.
  const LossScaler before = config.precision.loss_scaler.value_or(LossScaler());
  const int64_t interval = growth_interval.value_or(before.growth_interval());
  if (!loss_scale) {
    config.precision.loss_scaler = LossScaler(before.scale(), interval, before.finite_steps());
    return;
  }
  const NumberRange<int64_t> range{1, LossScaler::kLargest};
  try {
    config.precision.loss_scaler =
        LossScaler(parse_number("--loss-scale", *loss_scale, range), interval);
  } catch (const std::invalid_argument&) {
    throw UsageError("--loss-scale " + *loss_scale + ": takes a power of two, or none");
  }
}

}  // namespace fsdp
