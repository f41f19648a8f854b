#include <agreement/agreement.h>
#include <comm/collective_error.h>
#include <digest/sha256.h>
#include <exchange/hugging_face_folder.h>
#include <memory/live_bytes.h>
#include <state/checkpoint_folder.h>
#include <strategies/run_data.h>
#include <strategies/strategy.h>
#include <train/checkpoints.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

namespace fsdp {
namespace {

std::string not_saved(const TrainConfig& config, int64_t steps, const std::string& why) {
  const auto latest = latest_step(config.checkpoint.dir);
  return "--checkpoint-dir " + config.checkpoint.dir + ": step " + std::to_string(steps) +
         " can't be saved: " + why +
         (latest ? "; when this is fixed, continue from step " + std::to_string(*latest) +
                       " (--resume " + config.checkpoint.dir + ")"
                 : "");
}

// Returns the name of the file for the options of the run. A resumed run uses a new name, so that
// the options with which the run began stay in the folder.
std::string name_of_options(const TrainConfig& config) {
  const std::string usual = "run.toml";
  std::error_code unknown;
  if (config.checkpoint.first_step == 0 ||
      !std::filesystem::exists(config.checkpoint.dir + '/' + usual, unknown))
    return usual;
  char name[48];
  std::snprintf(name, sizeof name, "run-from-%06lld.toml",
                static_cast<long long>(config.checkpoint.first_step));
  return name;
}

}  // namespace

nlohmann::ordered_json settings_of_run(const TrainConfig& config) {
  const OptimizerOptions& optimizer = config.optimizer;
  const bool adamw = optimizer.kind == OptimizerOptions::Kind::adamw;
  nlohmann::ordered_json settings{
      {"model", config.model.name},
      {"recipe", to_string(config.data.kind)},
      {"seed", config.training.seed},
      {"batch", config.training.batch},
      {"seq", config.training.seq},
      {"parts", config.batch_partition().microbatches()},
      {"param_dtype", dtype_name(config.precision.policy.param_dtype)},
      {"reduce_dtype", dtype_name(config.precision.policy.reduce_dtype)},
      {"keep_fp32", config.precision.keep_fp32},
      {"scales_loss", config.precision.loss_scaler.has_value()},
      {"optimizer", adamw ? "adamw" : "sgd"},
      {"lr", optimizer.lr},
      {"weight_decay", optimizer.weight_decay},
      {"no_decay", config.optimizer.no_decay},
      {"clip", config.optimizer.clip ? nlohmann::ordered_json(*config.optimizer.clip)
                                     : nlohmann::ordered_json()},
      {"norm_type", std::isinf(config.optimizer.norm_type)
                        ? nlohmann::ordered_json("inf")
                        : nlohmann::ordered_json(config.optimizer.norm_type)}};
  if (adamw) {
    settings["betas"] = {optimizer.beta1, optimizer.beta2};
    settings["eps"] = optimizer.eps;
  }
  if (config.model.vocabulary > 0) settings["vocabulary"] = config.model.vocabulary;
  if (optimizer.lr_factor) {
    settings["warmup"] = config.optimizer.warmup;
    settings["lr_decay"] = to_string(config.optimizer.lr_decay);
    settings["min_lr"] = config.optimizer.min_lr;
  }
  if (config.data.kind == DataKind::modular) settings["modulus"] = config.data.modulus;
  settings["steps"] = config.training.steps;
  for (const std::string& path : config.data.tokens)
    settings["tokens"].push_back(std::filesystem::file_size(path));
  if (config.data.kind != DataKind::text) return settings;
  Sha256 hash;
  hash.update(std::as_bytes(std::span(*text_of(config))));
  settings["text_sha256"] = hash.hex();
  settings["text_held_out"] = "last tenth";
  return settings;
}

void go_on_from(const Checkpoint& checkpoint, TrainConfig& config) {
  config.checkpoint.resume = checkpoint.folder;
  config.checkpoint.first_step = checkpoint.step;
  if (!checkpoint.run.contains("loss_scaler")) return;
  const auto number = [&](const std::string& name) {
    return checkpoint.number_in_run("/loss_scaler/" + name).value_or(0);
  };
  config.precision.loss_scaler =
      LossScaler(number("scale"), number("growth_interval"), number("finite_steps"));
}

std::string difference_of_runs(const nlohmann::ordered_json& saved,
                               const nlohmann::ordered_json& own) {
  for (const auto* settings : {&own, &saved}) {
    for (const auto& [key, value] : settings->items()) {
      const auto of = [key = key](const nlohmann::ordered_json& json) {
        const bool none = !json.contains(key) || json.at(key).is_null();
        return none ? "none" : json.at(key).dump();
      };
      const bool may_change = key == "parts" || key == "steps" || key == "loss_scaler";
      if (may_change || of(saved) == of(own)) continue;
      if (key == "text_sha256")
        return "another text, or it has changed since; give the same --text";
      return key + ' ' + of(saved) + ", and this run has " + of(own);
    }
  }
  return "";
}

std::string change_of_rate(const TrainConfig& config, int64_t saved_steps) {
  if (config.optimizer.lr_decay == LrDecay::none || saved_steps == config.training.steps) return "";
  TrainConfig before = config;
  before.training.steps = saved_steps;
  char rates[160];
  std::snprintf(rates, sizeof rates, "step %lld has the rate %.4g, not %.4g",
                static_cast<long long>(config.checkpoint.first_step + 1),
                config.lr_of(config.checkpoint.first_step),
                before.lr_of(config.checkpoint.first_step));
  return "--steps " + std::to_string(config.training.steps) + " beside " +
         std::to_string(saved_steps) + " of the checkpoint: --lr-decay " +
         to_string(config.optimizer.lr_decay) + " now ends there, so " + rates +
         "; the run has other bits than one with these --steps from the beginning";
}

std::string load_init(const TrainConfig& config, Strategy& strategy, Communicator& comm) {
  if (config.model.init.empty()) return "";
  load_hugging_face(config.model.init, strategy.state(), comm);
  return "begins with the parameters in " + config.model.init;
}

std::string resume(const TrainConfig& config, Strategy& strategy, Communicator& comm) {
  if (config.checkpoint.resume.empty()) return "";
  load_checkpoint(config.checkpoint.resume, strategy.state(), strategy.locate(), comm);
  return "continues after step " + std::to_string(config.checkpoint.first_step) + " from " +
         config.checkpoint.resume;
}

std::string save_if_due(const TrainConfig& config, const nlohmann::ordered_json& settings,
                        int64_t steps, Strategy& strategy, Communicator& comm) {
  if (config.checkpoint.dir.empty()) return "";
  if (steps % config.checkpoint.save_every != 0 && steps != config.training.steps) return "";
  live_bytes::enter(Phase::init);  // memory for saving does not count as memory of a step
  try {
    save_checkpoint(config.checkpoint.dir, config.checkpoint.format, steps, settings,
                    strategy.state(), comm);
  } catch (const CollectiveError&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(not_saved(config, steps, error.what()));
  }
  const bool first_of_run = steps - config.checkpoint.first_step <= config.checkpoint.save_every;
  agree_on_rank_0(comm, [&] {
    if (first_of_run && !config.reports.saved_options.empty())  // lets the user repeat the run
      write_text(config.checkpoint.dir, name_of_options(config), config.reports.saved_options);
    if (config.checkpoint.keep)
      remove_old_checkpoints(config.checkpoint.dir, *config.checkpoint.keep);
  });
  return "saved step " + std::to_string(steps) + " in " + config.checkpoint.dir;
}

}  // namespace fsdp
