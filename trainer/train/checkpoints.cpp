#include <digest/sha256.h>
#include <exchange/hugging_face_folder.h>
#include <strategies/run_data.h>
#include <strategies/strategy.h>
#include <train/checkpoints.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

namespace fsdp {

nlohmann::ordered_json settings_of_run(const TrainConfig& config) {
  using Kind = OptimizerOptions::Kind;
  const OptimizerOptions& optimizer = config.optimizer;
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
      {"optimizer", to_string(optimizer.kind)},
      {"lr", optimizer.lr},
      {"weight_decay", optimizer.weight_decay},
      {"no_decay", config.optimizer.no_decay},
      {"clip", config.optimizer.clip ? nlohmann::ordered_json(*config.optimizer.clip)
                                     : nlohmann::ordered_json()},
      {"norm_type", std::isinf(config.optimizer.norm_type)
                        ? nlohmann::ordered_json("inf")
                        : nlohmann::ordered_json(config.optimizer.norm_type)}};
  if (optimizer.kind == Kind::muon) {
    settings["adamw"] = config.optimizer.adamw;
    settings["momentum"] = optimizer.momentum;
  }
  if (optimizer.kind != Kind::sgd) {
    settings["betas"] = {optimizer.beta1, optimizer.beta2};
    settings["eps"] = optimizer.eps;
  }
  if (config.model.vocabulary > 0) settings["vocabulary"] = config.model.vocabulary;
  if (!config.model.freeze.empty()) settings["freeze"] = config.model.freeze;
  if (config.model.lora > 0)
    settings["lora"] = {{"rank", config.model.lora},
                        {"alpha", config.model.lora_alpha},
                        {"target", config.model.lora_target}};
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

}  // namespace fsdp
