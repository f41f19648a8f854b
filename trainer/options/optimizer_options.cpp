#include <command_line/command_line.h>
#include <options/choices.h>
#include <options/groups.h>

#include <limits>
#include <memory>

namespace fsdp {
namespace {

constexpr double kMaxReal = std::numeric_limits<double>::max();
const char* const kNormsAndBiases = R"(bias$|(^|\.)(ln|norm)[^.]*\.weight$)";
const char* const kEmbeddingsAndHead = R"((^|\.)(wte|wpe|token_embeddings|lm_head)\.weight$)";

}  // namespace

void add_optimizer_options(CLI::App& app, TrainConfig& config, GivenOptimizer& given) {
  OptimizerConfig& optimizer = config.optimizer;
  using Kind = OptimizerOptions::Kind;
  add_choice(app, "--optimizer", optimizer.kind, choices_of({Kind::adamw, Kind::sgd, Kind::muon}),
             "adamw, sgd, or muon: Muon for matrices and AdamW for all else (default adamw)");
  app.add_option("--adamw", optimizer.adamw,
                 "with --optimizer muon, parameters that AdamW updates: a regular expression that "
                 "matches their names, or usual: embeddings, head, norms and biases (default "
                 "usual)");
  add_number(app, "--lr", given.lr, positive_up_to(kMaxReal),
             "learning rate (default 0.1 with sgd, else 0.001 or the rate of --recipe)");
  add_number(app, "--warmup", optimizer.warmup, NumberRange<int64_t>{0, kMany},
             "steps over which the rate grows linearly to --lr (default 0)");
  add_choice(app, "--lr-decay", optimizer.lr_decay, choices_of({LrDecay::cosine, LrDecay::linear}),
             "how the rate falls from the warmup to the last step: cosine or linear (default: it "
             "does not fall)");
  add_number(app, "--min-lr", optimizer.min_lr, NumberRange<double>{0, kMaxReal},
             "rate of the last step, with --lr-decay (default 0)");
  add_number(app, "--weight-decay", optimizer.weight_decay, NumberRange<double>{0, kMaxReal},
             "weight decay (default 0.01)");
  app.add_option("--no-decay", optimizer.no_decay,
                 "parameters without weight decay: a regular expression that matches their names, "
                 "or usual: norms and biases (default: none)");
  add_number(
      app, "--clip", optimizer.clip, positive_up_to(kMaxReal),
      "largest norm of all gradients together; larger gradients are scaled down to it (default: "
      "no limit)");
  const auto take_norm_type = [&optimizer](const std::string& text) {
    optimizer.norm_type = text == "inf"
                              ? std::numeric_limits<double>::infinity()
                              : parse_number("--norm-type", text, positive_up_to(kMaxReal));
  };
  app.add_option_function<std::string>("--norm-type", take_norm_type,
                                       "p of the p-norm that --clip limits (default 2)")
      ->type_name("NUMBER|inf");
  add_on_off(app, "--step-in-backward", optimizer.step_in_backward,
             "update each unit as soon as its gradient is reduced, and free the gradient");
}

void resolve_optimizer(TrainConfig& config, const GivenOptimizer& given, const Defaults& defaults) {
  OptimizerConfig& optimizer = config.optimizer;
  const bool sgd = optimizer.kind == OptimizerOptions::Kind::sgd;
  optimizer.lr = given.lr.value_or(sgd ? 0.1 : defaults.lr);
  if (optimizer.no_decay == "usual") optimizer.no_decay = kNormsAndBiases;
  const bool usual = optimizer.adamw.empty() || optimizer.adamw == "usual";
  if (optimizer.kind == OptimizerOptions::Kind::muon && usual)
    optimizer.adamw = kNormsAndBiases + std::string("|") + kEmbeddingsAndHead;
  if (optimizer.warmup > 0 || optimizer.lr_decay != LrDecay::none)
    optimizer.lr_factor = std::make_shared<double>(1);
}

void check_norm_type_option(const CLI::App& app, const TrainConfig& config) {
  if (app.count("--norm-type") > 0 && !config.optimizer.clip)
    throw UsageError("--norm-type: needs --clip");
}

void check_adamw_option(const CLI::App& app, const TrainConfig& config) {
  if (app.count("--adamw") > 0 && config.optimizer.kind != OptimizerOptions::Kind::muon)
    throw UsageError("--adamw: needs --optimizer muon");
}

void check_step_in_backward(const TrainConfig& config) {
  if (!config.optimizer.step_in_backward || config.ranks.mode != Mode::fsdp) return;
  const std::string option = "--step-in-backward on: ";
  if (config.optimizer.kind == OptimizerOptions::Kind::muon)
    throw UsageError(option + "--optimizer muon gathers the matrices of several units at a time");
  if (config.optimizer.clip)
    throw UsageError(option + "--clip needs the norm of all gradients before the first update");
  if (config.precision.loss_scaler)
    throw UsageError(option +
                     "with a loss scale (--loss-scale, fp16) a step is skipped if a gradient "
                     "overflows, which is known when all gradients are reduced");
  if (config.training.microbatches > config.ranks.world)
    throw UsageError(option + "needs one microbatch for each rank; give --microbatches " +
                     std::to_string(config.ranks.world));
}

void check_min_lr(const TrainConfig& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.min_lr > 0 &&
      (optimizer.lr_decay == LrDecay::none || optimizer.min_lr > optimizer.lr))
    throw UsageError("--min-lr: needs --lr-decay, and must be at most --lr");
}

}  // namespace fsdp
