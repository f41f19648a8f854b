#include <base/text.h>
#include <diff/hash_recorder.h>
#include <memory/live_bytes.h>
#include <report/run_log.h>
#include <report/telemetry.h>
#include <strategies/data_of_run.h>
#include <trace/recorder.h>
#include <train/checkpoints.h>
#include <train/enough_memory.h>
#include <train/final_report.h>
#include <train/held_out.h>
#include <train/one_run.h>
#include <train/over_ranks.h>
#include <train/step_meter.h>
#include <train/training_run.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace fsdp {
namespace {

// What the strategy sums and gathers by: `world`, unless the model has replicas.
std::shared_ptr<Communicator> strategy_communicator(const RankContext& context,
                                                    const TrainConfig& config,
                                                    const std::shared_ptr<Communicator>& world) {
  if (config.mode != "fsdp" || config.shards() == config.world) return world;
  return Communicator::create_hybrid(context, config.comm, config.shards());
}

std::unique_ptr<Strategy> make_strategy(const TrainConfig& config, const FsdpImplementation& fsdp,
                                        const Workload& workload, const ShardLayout& layout,
                                        const std::shared_ptr<Communicator>& comm) {
  if (config.mode == "fsdp") return fsdp.make_strategy(config, workload, comm);
  if (config.mode == "ddp") return make_ddp_strategy(config, workload, layout, comm);
  return make_single_strategy(config, workload, layout);
}

void check_keep_fp32(const TrainConfig& config, const ShardLayout& layout) {
  const auto kept = [&](const auto& parameter) { return config.keeps_fp32(parameter.name); };
  const auto& parameters = layout.parameters;
  if (config.keep_fp32.empty() || std::any_of(parameters.begin(), parameters.end(), kept)) return;
  throw std::invalid_argument("--keep-fp32 " + config.keep_fp32 + ": no parameter of " +
                              config.model + " has such a name; the last one is " +
                              parameters.back().name);
}

// " (hybrid, 2 replicas of 2 ranks)"; nothing where all ranks share out one model.
std::string strategy_text(const TrainConfig& config) {
  if (config.mode == "ddp" || config.shards() == config.world) return "";
  return std::string(" (") + config.strategy() + ", " +
         counted(config.world / config.shards(), "replica") + " of " +
         counted(config.shards(), "rank") + ')';
}

// "parameters in bf16 but for ln, gradients sent in fp32, "; nothing in fp32.
std::string precision_text(const TrainConfig& config) {
  const MixedPrecisionPolicy& precision = config.precision;
  if (precision == MixedPrecisionPolicy{}) return "";
  return std::string("parameters in ") + dtype_name(precision.param_dtype) +
         (config.keep_fp32.empty() ? "" : " but for " + config.keep_fp32) + ", gradients sent in " +
         dtype_name(precision.reduce_dtype) + ", ";
}

// "gloo"; "shm and gloo on 2 hosts" if shards and replicas communicate over either.
std::string transport_text(const Transports& transports, const RankContext& context) {
  std::string text = transports.shards;
  if (transports.replicas != transports.shards) text += " and " + transports.replicas;
  if (context.hosts && context.hosts->several())
    text += " on " + counted(static_cast<int64_t>(context.hosts->names.size()), "host");
  return text;
}

// "fsdp (hybrid, 2 replicas of 2 ranks) of small, 4 ranks over shm, text, batch 8 x 127 tokens, 100
// steps"
std::string description(const TrainConfig& config, const RankContext& context,
                        const Transports& transports) {
  return config.mode + strategy_text(config) + " of " + config.model + ", " +
         counted(config.world, "rank") +
         (config.mode == "single" ? " played in turn"
                                  : " over " + transport_text(transports, context)) +
         (config.on_cuda() ? " on CUDA, " : ", ") + precision_text(config) + describe_data(config) +
         (config.parts > config.world ? ", " + counted(config.parts, "part") : "") + ", batch " +
         std::to_string(config.batch) + " x " + std::to_string(config.seq) + " tokens, " +
         counted(config.steps, "step");
}

nlohmann::ordered_json to_json(const LossScaler& scaler) {
  return {{"scale", scaler.scale()},
          {"growth_interval", scaler.growth_interval()},
          {"finite_steps", scaler.finite_steps()}};
}

// One rank's training, from the model to the report.
class TrainingRun {
 public:
  TrainingRun(const TrainConfig& config, const FsdpImplementation& fsdp, const RankContext& context,
              const Rehearsed& run)
      : config_(config),
        traces_(run.traces),
        comm_(Communicator::create(context, config.comm)),
        strategy_comm_(strategy_communicator(context, config, comm_)),
        dataset_(make_dataset(config)),
        scaler_(config.loss_scaler),
        telemetry_(config.steps, config.json) {
    require_one_run(config, context, *comm_);
    if (leads() && !config.log.empty()) {
      log_.emplace(config.log);
      meter_.emplace(config.comm.clock);
    }
    const auto dataset = meter_ ? meter_->measured(dataset_) : dataset_;
    workload_ = workload_of_run(config, fsdp, dataset);
    if (!config.hashes.empty()) {
      hashes_.emplace(config, run.layout, settings_of_run(config), context.rank);
      workload_ = hashes_->observed(std::move(workload_));
    }
    if (leads()) telemetry_.say(description(config, context, transports()));
    if (!config.on_cuda())
      require_enough_memory(config, run.layout, run.traces, transports(),
                            static_cast<int>(context.ranks_here().size()), memory_of_machine());
    strategy_ = make_strategy(config, fsdp, workload_, run.layout, strategy_comm_);
    check_keep_fp32(config, run.layout);
    if (scaler_) strategy_->set_loss_scale(scaler_->scale());
    if (config.eval_every > 0) held_out_.emplace(config, *dataset_);
    if (!leads()) return;
    if (!config.checkpoint_dir.empty()) settings_ = settings_of_run(config);
    char live[48];
    std::snprintf(live, sizeof live, "%.1f MB", static_cast<double>(live_bytes::now().total) / 1e6);
    telemetry_.say(with_commas(strategy_->layout().numel()) + " parameters, " + live +
                   " live on each rank");
  }

  void operator()() {
    say(load_init(config_, *strategy_, *comm_));
    say(resume(config_, *strategy_, *comm_));
    if (hashes_) hashes_->record(What::initial, config_.first_step, *strategy_);
    ParameterSummary before;
    strategy_->full_parameters([&](const auto&, const at::Tensor& p) { before.add(p); });
    if (config_.steps == 0) evaluate();
    for (int64_t step = config_.first_step; step < config_.steps; ++step) {
      train(step);
      say(save_if_due(config_, settings_, step + 1, *strategy_, *comm_));
    }
    auto line = final_line(config_, *strategy_, *comm_, before, last_log_, traces_, transports());
    if (scaler_) {
      line["loss_scaler"] = to_json(*scaler_);
      line["skipped_steps"] = skipped_steps_;
    }
    if (!leads()) return;
    auto summary = summary_of(line);
    if (const auto compared = loss_beside_entropy()) summary.push_back(*compared);
    telemetry_.finish(line, summary);
  }

 private:
  bool leads() const { return comm_->rank() == 0; }
  Transports transports() const { return {*comm_, *strategy_comm_}; }
  void say(const std::string& line) {
    if (leads() && !line.empty()) telemetry_.say(line);
  }

  void evaluate() {
    comm_->take_log();
    live_bytes::enter(Phase::forward);
    const MeanOverRanks loss =
        mean_of(strategy_->evaluate([this](Module& model, int part, int parts) {
          return workload_.loss(model, part, parts, 0);
        }));
    last_log_ = comm_->take_log();
    if (leads()) telemetry_.evaluated(loss.mean());
    log_line_ = {{"step", 0}, {"eval", true}, {"loss", loss.mean()}};
    if (log_ && std::isfinite(loss.mean())) log_->write(log_line_);
    require_finite("before training", loss, std::nullopt);
  }

  void train(int64_t step) {
    if (step == config_.first_step + 1) {  // from here on there is optimizer state in every phase
      for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer})
        live_bytes::reset(phase);
    }
    take_log();
    if (meter_) meter_->begin_step();
    if (config_.optimizer.lr_factor)
      *config_.optimizer.lr_factor = config_.lr_of(step) / config_.optimizer.lr;
    const uint64_t span = begin_span(EventKind::step, "", static_cast<uint64_t>(step));
    const auto start = std::chrono::steady_clock::now();
    const MeanOverRanks loss = mean_of(strategy_->forward_backward(step));
    if (hashes_ && !(config_.step_in_backward && config_.mode == "fsdp"))
      hashes_->record(What::reduced, step, *strategy_);
    const std::optional<double> norm = update(step);
    live_bytes::enter(Phase::init);  // of no step
    losses_.push_back(loss.mean());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    end_span(span);
    if (meter_) meter_->end_step();
    last_log_ = take_log();
    if (step == config_.first_step) {
      comm_->end_first_iteration();
      strategy_comm_->end_first_iteration();
    }
    if (leads()) {
      const auto tokens = static_cast<double>(config_.batch * config_.seq);
      telemetry_.step(step, losses_.back(), tokens / seconds.count(), norm,
                      live_bytes::now().total);
      if (log_) begin_log_line(step, tokens / seconds.count(), norm);
    }
    seconds_ += seconds.count();
    require_finite("in step " + std::to_string(step + 1) + " of " + std::to_string(config_.steps),
                   loss, norm);
    evaluate_held_out_if_due(step + 1);
    if (log_) log_->write(log_line_);
  }

  void begin_log_line(int64_t step, double tokens_per_s, std::optional<double> norm) {
    log_line_ = {{"step", step}, {"loss", losses_.back()}};
    if (norm) log_line_["grad_norm"] = *norm;
    log_line_["lr"] = config_.lr_of(step);
    log_line_["tokens_per_s"] = tokens_per_s;
    log_line_.update(meter_->json());
    log_line_["live_bytes"] = live_bytes_now_and_peak();
  }

  void evaluate_held_out_if_due(int64_t steps) {
    if (!held_out_ || (steps % config_.eval_every != 0 && steps != config_.steps)) return;
    const HeldOutResult result = held_out_->evaluate(*strategy_, *comm_);
    if (log_) log_line_["held_out"] = {{"loss", result.loss}, {"accuracy", result.accuracy}};
    char seconds[48];
    std::snprintf(seconds, sizeof seconds, " (%.1f s of training)", seconds_);
    say("held out, after step " + std::to_string(steps) + ": " + to_string(result) + seconds);
  }

  std::vector<Call> take_log() {
    std::vector<Call> log = comm_->take_log();
    const auto others = strategy_comm_->take_log();  // nothing if it is the same
    log.insert(log.end(), others.begin(), others.end());
    return log;
  }

  MeanOverRanks mean_of(const at::Tensor& losses) const {
    const int parts = config_.arrangement().parts();
    return {*comm_, losses, parts / comm_->world_size()};
  }

  // Returns the norm of the gradients if it is known: they are clipped, or the loss is scaled.
  // Nothing if the step was skipped.
  std::optional<double> update(int64_t step) {
    const uint64_t span = begin_span(EventKind::optimizer, "");
    std::optional<double> norm;
    if (meter_) meter_->begin_optimizer();
    if (config_.clip || scaler_) {
      constexpr double kNoClip = std::numeric_limits<double>::infinity();
      norm = strategy_->clip_grad_norm(config_.clip.value_or(kNoClip), config_.norm_type);
      if (hashes_) hashes_->record_norm(step, *norm);
      if (hashes_) hashes_->record(What::clipped, step, *strategy_);
    }
    const bool skip = scaler_ && scaler_->scale() > 1 && !std::isfinite(*norm);
    if (skip) {
      strategy_->skip_step();
      norm.reset();
    } else {
      strategy_->step();
    }
    if (meter_) meter_->end_optimizer();
    if (hashes_) hashes_->record(What::updated, step, *strategy_);
    if (scaler_) update_scaler(step, !skip);
    end_span(span);
    return norm;
  }

  void update_scaler(int64_t step, bool finite) {
    const int64_t before = scaler_->scale();
    scaler_->update(finite);
    strategy_->set_loss_scale(scaler_->scale());
    if (!config_.checkpoint_dir.empty()) settings_["loss_scaler"] = to_json(*scaler_);
    if (finite) return;
    ++skipped_steps_;
    say("step " + std::to_string(step + 1) + " is skipped: with a loss scale of " +
        std::to_string(before) + " its gradients are not finite; the scale becomes " +
        std::to_string(scaler_->scale()));
  }

  // The mean loss and the norm are the same on all ranks, so all ranks fail together.
  void require_finite(const std::string& when, const MeanOverRanks& loss,
                      std::optional<double> norm) {
    const bool finite_loss = std::isfinite(loss.mean());
    if (config_.allow_nan || (finite_loss && std::isfinite(norm.value_or(0)))) return;
    std::string what = "the norm of the gradients is " + std::to_string(norm.value_or(0));
    if (!finite_loss) {
      const auto broken = gather_from_ranks(*comm_, !std::isfinite(loss.own()));
      std::string ranks;
      for (size_t rank = 0; rank < broken.size(); ++rank)
        if (broken[rank] != 0) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
      what = "the loss is " + std::to_string(loss.mean()) + " (not finite on rank " + ranks + ")";
    }
    what +=
        " " + when + "; try a smaller learning rate or clip the gradients, or allow NaN to go on";
    if (leads()) telemetry_.fail(what);
    if (log_) log_->write(log_line_);
    if (log_) log_->write({{"failure", what}});
    // The first rank that ends by an exception ends the others: not before the file is written.
    comm_->barrier(kMetrics).wait();
    throw std::runtime_error("rank " + std::to_string(comm_->rank()) + " ended the run: " + what);
  }

  // For text: how far the model is from one that knows only how frequent each byte is.
  std::optional<std::string> loss_beside_entropy() const {
    const auto* text = dynamic_cast<const TextDataset*>(dataset_.get());
    if (text == nullptr || losses_.empty()) return std::nullopt;
    const size_t count = std::min<size_t>(losses_.size(), 20);
    const auto first = losses_.end() - static_cast<std::ptrdiff_t>(count);
    const double mean = std::accumulate(first, losses_.end(), 0.0) / static_cast<double>(count);
    char line[160];
    std::snprintf(
        line, sizeof line,
        "mean loss of the last %zu steps %.4f, unigram entropy of the text %.4f (nats per byte)",
        count, mean, text->unigram_entropy());
    return line;
  }

  const TrainConfig& config_;
  const std::optional<ModelTraces>& traces_;     // none: they could not be rehearsed
  std::shared_ptr<Communicator> comm_;           // of all ranks
  std::shared_ptr<Communicator> strategy_comm_;  // the same, unless the model has replicas
  std::shared_ptr<Dataset> dataset_;
  std::optional<LossScaler> scaler_;
  int64_t skipped_steps_{};
  std::optional<HashRecorder> hashes_;  // if config says so
  Workload workload_;
  std::optional<HeldOut> held_out_;  // what is evaluated while the model is trained
  nlohmann::ordered_json settings_;  // what checkpoints say of the run; on rank 0, if any are saved
  Telemetry telemetry_;
  std::optional<RunLog> log_;        // on rank 0, if config says so
  std::optional<StepMeter> meter_;   // the same
  nlohmann::ordered_json log_line_;  // of the last step
  std::unique_ptr<Strategy> strategy_;
  std::vector<double> losses_;
  double seconds_{};            // of the steps so far
  std::vector<Call> last_log_;  // the collectives of the last step
};

}  // namespace

void train_rank(const TrainConfig& config, const FsdpImplementation& fsdp,
                const RankContext& context, const Rehearsed& run) {
  TrainingRun(config, fsdp, context, run)();
}

}  // namespace fsdp
