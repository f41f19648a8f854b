#include <digest/sha256.h>
#include <exchange/hugging_face_folder.h>
#include <memory/live_bytes.h>
#include <state/agreement.h>
#include <state/checkpoint_folder.h>
#include <strategies/workload.h>
#include <train/checkpoints.h>

#include <cmath>
#include <filesystem>

namespace fsdp {

nlohmann::ordered_json settings_of_run(const TrainConfig& config) {
  const OptimizerOptions& optimizer = config.optimizer;
  const bool adamw = optimizer.kind == OptimizerOptions::Kind::adamw;
  nlohmann::ordered_json settings{
      {"model", config.model},
      {"recipe", config.data},
      {"seed", config.seed},
      {"batch", config.batch},
      {"seq", config.seq},
      {"parts", config.arrangement().parts()},
      {"param_dtype", dtype_name(config.precision.param_dtype)},
      {"reduce_dtype", dtype_name(config.precision.reduce_dtype)},
      {"keep_fp32", config.keep_fp32},
      {"scales_loss", config.loss_scaler.has_value()},
      {"optimizer", adamw ? "adamw" : "sgd"},
      {"lr", optimizer.lr},
      {"weight_decay", optimizer.weight_decay},
      {"no_decay", config.no_decay},
      {"clip", config.clip ? nlohmann::ordered_json(*config.clip) : nlohmann::ordered_json()},
      {"norm_type", std::isinf(config.norm_type) ? nlohmann::ordered_json("inf")
                                                 : nlohmann::ordered_json(config.norm_type)}};
  if (adamw) {
    settings["betas"] = {optimizer.beta1, optimizer.beta2};
    settings["eps"] = optimizer.eps;
  }
  if (config.vocabulary > 0) settings["vocabulary"] = config.vocabulary;
  if (optimizer.lr_factor) {
    settings["warmup"] = config.warmup;
    settings["lr_decay"] = config.lr_decay;
    settings["min_lr"] = config.min_lr;
  }
  if (config.data == "modular") settings["modulus"] = config.modulus;
  for (const std::string& path : config.tokens)
    settings["tokens"].push_back(std::filesystem::file_size(path));
  if (config.data != "text") return settings;
  Sha256 hash;
  hash.update(std::as_bytes(std::span(*text_of(config))));
  settings["text_sha256"] = hash.hex();
  settings["text_held_out"] = "last tenth";
  return settings;
}

void go_on_from(const Checkpoint& checkpoint, TrainConfig& config) {
  config.resume = checkpoint.folder;
  config.first_step = checkpoint.step;
  if (!checkpoint.run.contains("loss_scaler")) return;
  const auto number = [&](const std::string& name) {
    return checkpoint.number_in_run("/loss_scaler/" + name).value_or(0);
  };
  config.loss_scaler =
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
      if (key == "parts" || key == "loss_scaler" || of(saved) == of(own)) continue;
      if (key == "text_sha256")
        return "another text, or it has changed since; give the same --text";
      return key + ' ' + of(saved) + ", and this run has " + of(own);
    }
  }
  return "";
}

std::string load_init(const TrainConfig& config, Strategy& strategy, Communicator& comm) {
  if (config.init.empty()) return "";
  load_hugging_face(config.init, strategy.state(), comm);
  return "begins with the parameters in " + config.init;
}

std::string resume(const TrainConfig& config, Strategy& strategy, Communicator& comm) {
  if (config.resume.empty()) return "";
  load_checkpoint(config.resume, strategy.state(), strategy.locate(), comm);
  return "goes on after step " + std::to_string(config.first_step) + " from " + config.resume;
}

std::string save_if_due(const TrainConfig& config, const nlohmann::ordered_json& settings,
                        int64_t steps, Strategy& strategy, Communicator& comm) {
  if (config.checkpoint_dir.empty()) return "";
  if (steps % config.save_every != 0 && steps != config.steps) return "";
  live_bytes::enter(Phase::init);  // what saving takes is no step's
  const auto format =
      config.checkpoint_format == "full" ? CheckpointFormat::full : CheckpointFormat::sharded;
  save_checkpoint(config.checkpoint_dir, format, steps, settings, strategy.state(), comm);
  const bool first_of_run = steps - config.first_step <= config.save_every;
  agree_on_rank_0(comm, [&] {
    if (first_of_run && !config.given.empty())  // so that the run can be repeated
      write_text(config.checkpoint_dir, "run.toml", config.given);
    if (config.keep) remove_old_checkpoints(config.checkpoint_dir, *config.keep);
  });
  return "saved step " + std::to_string(steps) + " in " + config.checkpoint_dir;
}

}  // namespace fsdp
