#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <command_line/usage.h>
#include <linux/magic.h>
#include <options/groups.h>
#include <sys/vfs.h>

#include <filesystem>
#include <limits>
#include <map>
#include <regex>
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
  if (config.keep_fp32.empty()) return;
  if (config.precision == MixedPrecisionPolicy{})
    throw UsageError("--keep-fp32: needs --param-dtype or --reduce-dtype");
  check_pattern("--keep-fp32", config.keep_fp32);
}

// Whether what is written into the folder stays in memory.
bool is_memory(const std::string& folder) {
  struct statfs system {};
  return statfs(folder.c_str(), &system) == 0 &&
         (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

}  // namespace

// A longer one may be nested so deep that std::regex overflows the stack.
void check_pattern(const std::string& option, const std::string& pattern) {
  constexpr size_t kLongest = 500;
  try {
    if (pattern.size() <= kLongest) return static_cast<void>(std::regex(pattern));
  } catch (const std::regex_error&) {
    throw UsageError(option + ' ' + pattern + ": not a regular expression");
  }
  throw UsageError(option + ": takes at most " + std::to_string(kLongest) + " characters");
}

void PrecisionOptions::add(CLI::App& app, TrainConfig& config) {
  add_dtype(app, "--param-dtype", config.precision.param_dtype,
            "precision in which parameters are gathered, and compute (default fp32); the "
            "optimizer's stay fp32");
  add_dtype(app, "--reduce-dtype", config.precision.reduce_dtype,
            "precision in which gradients are sent (default --param-dtype); they are added in "
            "fp32");
  app.add_option("--keep-fp32", config.keep_fp32,
                 "regular expression: parameters whose names match keep fp32 (ln: all norms)")
      ->type_name("PATTERN");
  app.add_option("--loss-scale", loss_scale,
                 "power of two by which the loss is multiplied at first, or none (default 65536 "
                 "with fp16, else none); halved when gradients overflow")
      ->type_name("INT|none");
  add_number(app, "--growth-interval", growth_interval, NumberRange<int64_t>{1, kMany},
             "steps without overflow after which it is doubled (default 2000)");
}

void PrecisionOptions::settle(const CLI::App& app, TrainConfig& config) const {
  MixedPrecisionPolicy& precision = config.precision;
  if (app.count("--reduce-dtype") == 0) precision.reduce_dtype = precision.param_dtype;
  if (precision != MixedPrecisionPolicy{} && config.arrangement().turns > 1 &&
      config.accumulate == "last") {
    throw UsageError(
        "--accumulate last: is not made for mixed precision; give --accumulate each, or "
        "--param-dtype fp32 and --reduce-dtype fp32");
  }
  check_keep_fp32(config);
  const bool fp16 = precision.param_dtype == at::kHalf || precision.reduce_dtype == at::kHalf;
  if (loss_scale == "none" || (!loss_scale && !fp16)) {
    if (growth_interval) throw UsageError("--growth-interval: needs --loss-scale");
    config.loss_scaler.reset();
    return;
  }
  const LossScaler before = config.loss_scaler.value_or(LossScaler());  // of the checkpoint, if any
  const int64_t interval = growth_interval.value_or(before.growth_interval());
  if (!loss_scale) {
    config.loss_scaler = LossScaler(before.scale(), interval, before.finite_steps());
    return;
  }
  const NumberRange<int64_t> range{1, LossScaler::kLargest};
  try {
    config.loss_scaler = LossScaler(parse_number("--loss-scale", *loss_scale, range), interval);
  } catch (const std::invalid_argument&) {
    throw UsageError("--loss-scale " + *loss_scale + ": takes a power of two, or none");
  }
}

void add_offload_options(CLI::App& app, TrainConfig& config) {
  const std::vector<std::string> what{"none", "optimizer"};
  app.add_option_function<std::string>(
         "--offload", [what](const std::string& text) { index_of_word("--offload", text, what); },
         "optimizer (AdamW's moments lie in a file of each rank, and sums of gradients that wait for "
         "other parts of the batch) or none (default none)")
      ->type_name("none|optimizer");
  app.add_option("--offload-dir", config.offload_dir,
                 "folder of these files, which have no name and end with the run");
  add_number(app, "--pinned", config.pinned,
             NumberRange<int64_t>{1, std::numeric_limits<int64_t>::max() / 2},
             "bytes of each rank's moments that stay in memory all the same (default 0)");
}

void check_offload_options(const CLI::App& app, const TrainConfig& config, bool only_plans) {
  const bool offload = app.count("--offload") > 0 && app["--offload"]->as<std::string>() != "none";
  if (!offload) {
    for (const char* option : {"--offload-dir", "--pinned"})
      if (app.count(option) > 0)
        throw UsageError(std::string(option) + ": needs --offload optimizer");
    return;
  }
  if (config.offload_dir.empty()) throw UsageError("--offload optimizer: needs --offload-dir");
  std::error_code unknown;
  if (!only_plans && !std::filesystem::exists(config.offload_dir, unknown) && !unknown)
    throw UsageError("--offload-dir " + config.offload_dir + ": no such folder");
  if (!only_plans)
    check_output("--offload-dir", config.offload_dir, reason_not_to_fill(config.offload_dir));
  if (!only_plans && is_memory(config.offload_dir))
    throw UsageError("--offload-dir " + config.offload_dir +
                     ": lies in memory; give one on a disk");
  if (config.optimizer.kind == OptimizerOptions::Kind::sgd)
    throw UsageError("--offload optimizer: sgd has no state; give --optimizer adamw");
  if (config.on_cuda()) throw UsageError("--offload optimizer: takes --device cpu");
}

}  // namespace fsdp
