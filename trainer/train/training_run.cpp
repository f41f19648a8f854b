#include <base/text.h>
#include <comm/collective_error.h>
#include <comm/communicator.h>
#include <diff/hash_recorder.h>
#include <hosts/handover.h>
#include <memory/live_bytes.h>
#include <report/parameter_summary.h>
#include <report/telemetry.h>
#include <strategies/run_data.h>
#include <strategies/strategy.h>
#include <strategies/workload.h>
#include <trace/recorder.h>
#include <train/checkpoint_room.h>
#include <train/checkpoints.h>
#include <train/going_on.h>
#include <train/held_out.h>
#include <train/keep_fp32_check.h>
#include <train/make_strategy.h>
#include <train/memory_check.h>
#include <train/over_ranks.h>
#include <train/preparation.h>
#include <train/profile.h>
#include <train/rehearsed_run.h>
#include <train/run_report.h>
#include <train/run_workload.h>
#include <train/step_meter.h>
#include <train/training_run.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>

namespace fsdp {
namespace {

nlohmann::ordered_json to_json(const LossScaler& scaler) {
  return {{"scale", scaler.scale()},
          {"growth_interval", scaler.growth_interval()},
          {"finite_steps", scaler.finite_steps()}};
}

constexpr int64_t kProfiledSteps = 2;  // the last ones of a run

// One rank's training, from the model to the report.
class TrainingRun {
 public:
  TrainingRun(const TrainConfig& config, const FsdpImplementation& fsdp, const RankContext& context,
              const Rehearsed& run, const nlohmann::ordered_json& handed)
      : config_(config),
        context_(context),
        handed_(handed),
        traces_(run.traces),
        comm_(Communicator::create(context, config.ranks.comm)),
        strategy_comm_(strategy_communicator(context, config, comm_)),
        dataset_(make_dataset(config)),
        scaler_(config.precision.loss_scaler),
        telemetry_(config.training.steps, leads() ? config.reports.json : "",
                   /*lines_only=*/context.hosts != nullptr) {
    require_one_run(config, context, *comm_);
    if (leads() && !config.reports.log.empty()) {
      log_.emplace(config.reports.log);
      if (handed_.is_null()) log_->go_on_after(config.checkpoint.first_step);
      meter_.emplace(config.ranks.comm.clock);
    }
    const auto dataset = meter_ ? meter_->measured(dataset_) : dataset_;
    workload_ = workload_of_run(config, fsdp, dataset);
    if (!config.reports.hashes.empty()) {
      hashes_.emplace(config, run.layout, settings_of_run(config), context.rank);
      workload_ = hashes_->observed(workload_);
    }
    if (leads() && handed_.is_null()) telemetry_.say(description(config, context, transports()));
    if (!config.on_cuda()) require_memory(run);
    if (leads() && handed_.is_null() && !config.checkpoint.dir.empty()) {
      remove_unfinished_checkpoints(config.checkpoint.dir);
      require_room_for_checkpoints(config, run.layout, room_for_checkpoints(config));
    }
    strategy_ = make_strategy(config, fsdp, workload_, run.layout, strategy_comm_);
    check_keep_fp32(config, run.layout);
    if (scaler_) strategy_->set_loss_scale(scaler_->scale());
    if (config.data.eval_every > 0) held_out_.emplace(config, *dataset_);
    if (!leads()) return;
    if (!config.checkpoint.dir.empty()) settings_ = settings_of_run(config);
    if (!handed_.is_null()) return;
    char live[48];
    std::snprintf(live, sizeof live, "%.1f MB", static_cast<double>(live_bytes::now().total) / 1e6);
    telemetry_.say(with_commas(strategy_->layout().numel()) + " parameters, " + live +
                   " live on each rank");
  }

  void operator()() {
    try {
      run();
      // Who leaves knows that all others are done, and needs nobody any more.
      if (Handover::current) comm_->barrier(kMetrics).wait();
    } catch (const std::exception&) {
      if (Handover::current && has_lost_a_rank(context_)) leave();
      throw;
    }
  }

 private:
  // Of all ranks of a host, which know the same, the first one throws.
  void require_memory(const Rehearsed& run) const {
    const auto here = context_.ranks_here();
    try {
      require_enough_memory(config_, run.layout, run.traces, transports(),
                            static_cast<int>(here.size()), memory_of_machine());
    } catch (const std::runtime_error&) {
      if (context_.rank != here.front()) comm_->barrier(kMetrics).wait();
      throw;
    }
  }

  void run() {
    if (handed_.is_null()) {
      begin();
    } else {
      take_over();
    }
    if (config_.training.steps == 0) evaluate();
    for (int64_t step = config_.checkpoint.first_step; step < config_.training.steps; ++step) {
      if (step == std::max(config_.checkpoint.first_step, config_.training.steps - kProfiledSteps))
        begin_profile();
      train(step);
      if (profile_ && step + 1 == config_.training.steps) profile_->write(config_.reports.profile);
      follow_up(step + 1);
    }
    auto line =
        final_line(config_, *strategy_, *comm_, sum_before_, last_log_, traces_, transports());
    if (scaler_) {
      line["loss_scaler"] = to_json(*scaler_);
      line["skipped_steps"] = skipped_steps_;
    }
    if (!leads()) return;
    auto summary = summary_of(line);
    if (const auto compared = loss_beside_entropy(*dataset_, losses_)) summary.push_back(*compared);
    telemetry_.finish(line, summary);
  }

  void begin_profile() {
    if (leads() && !config_.reports.profile.empty()) profile_.emplace(config_.ranks.comm.device);
  }

  void begin() {
    say(load_init(config_, *strategy_, *comm_));
    say(resume(config_, *strategy_, *comm_));
    if (hashes_) hashes_->record(What::initial, config_.checkpoint.first_step, *strategy_);
    ParameterSummary before;
    strategy_->full_parameters([&](const auto&, const at::Tensor& p) { before.add(p); });
    sum_before_ = before.sum_fp64();
  }

  // What comes after the update of a step, by calls of all ranks.
  void follow_up(int64_t steps, bool saved = false) {
    evaluate_held_out_if_due(steps);
    if (log_) log_->write(log_line_);
    if (!saved) say(save_if_due(config_, settings_, steps, *strategy_, *comm_));
    followed_up_ = steps;
  }

  // What the run has come to, beside the tensors. Of the losses, those that the last line has.
  nlohmann::ordered_json so_far() const {
    nlohmann::ordered_json run{{"sum_before", sum_before_},
                               {"lines", telemetry_.lines()},
                               {"log_line", log_line_},
                               {"seconds", seconds_},
                               {"skipped_steps", skipped_steps_},
                               {"followed_up", followed_up_},
                               {"losses", losses_}};
    if (scaler_) run["loss_scaler"] = to_json(*scaler_);
    return run;
  }

  // This rank has lost another one: leaves its state before the step under way. If it has all that
  // the update needs, others may have made it: then leaves the state after it, too.
  void leave() {
    const auto write = [this](int file) { write_state(file, so_far(), ranges_); };
    if (ranges_.empty()) return;  // no step has begun
    Handover::current->leave(steps_done_, write);
    if (!pending_) return;
    try {
      finish_step();
    } catch (const CollectiveError&) {
      return;  // a rank still reads what it changes: then nobody has made it
    }
    Handover::current->leave(steps_done_, write);
  }

  void take_over() {
    ranges_ = strategy_->state().ranges;
    read_ranges(Handover::current->file(), ranges_);
    Handover::current->free();
    sum_before_ = handed_["sum_before"];
    telemetry_.go_on_after(handed_["lines"].get<std::string>());
    log_line_ = handed_["log_line"];
    seconds_ = handed_["seconds"];
    skipped_steps_ = handed_["skipped_steps"];
    followed_up_ = handed_["followed_up"];
    for (const auto& loss : handed_["losses"])
      add_loss(loss.is_null() ? NAN : loss.get<double>());
    const int64_t step = config_.checkpoint.first_step;
    say("goes on after step " + std::to_string(step) + " with " +
        counted(config_.ranks.world, "rank") + " on " +
        counted(static_cast<int64_t>(context_.hosts->names.size()), "host"));
    // As rank 0 says, since each stopped at a place of its own.
    const bool saved =
        !config_.checkpoint.dir.empty() && latest_step(config_.checkpoint.dir) == step;
    const int64_t done = gather_from_ranks(*comm_, followed_up_ == step ? 2 : saved)[0];
    if (done < 2) follow_up(step, done == 1);
    followed_up_ = step;
  }

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
    if (step == config_.checkpoint.first_step +
                    1) {  // from here on there is optimizer state in every phase
      for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer})
        live_bytes::reset(phase);
    }
    take_log();
    if (Handover::current) ranges_ = strategy_->state().ranges;
    if (meter_) meter_->begin_step();
    if (config_.optimizer.lr_factor)
      *config_.optimizer.lr_factor = config_.lr_of(step) / config_.optimizer.lr;
    const uint64_t span = begin_span(EventKind::step, "", static_cast<uint64_t>(step));
    const auto start = std::chrono::steady_clock::now();
    const MeanOverRanks loss = mean_of(strategy_->forward_backward(step));
    if (hashes_ && !(config_.optimizer.step_in_backward && config_.ranks.mode == Mode::fsdp))
      hashes_->record(What::reduced, step, *strategy_);
    const uint64_t optimizer_span = begin_span(EventKind::optimizer, "");
    if (meter_) meter_->begin_optimizer();
    pending_ = Pending{step, span, optimizer_span, start, loss, norm_of_gradients(step)};
    // Who makes the update knows that all others have what theirs need.
    if (Handover::current) comm_->barrier(kMetrics).wait();
    const std::optional<double> norm = finish_step();
    if (step == config_.checkpoint.first_step) {
      comm_->end_first_iteration();
      strategy_comm_->end_first_iteration();
    }
    require_finite(
        "in step " + std::to_string(step + 1) + " of " + std::to_string(config_.training.steps),
        loss, norm);
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
    if (!held_out_ || (steps % config_.data.eval_every != 0 && steps != config_.training.steps))
      return;
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

  // Clips the gradients. Their norm, if it is known: they are clipped, or the loss is scaled.
  std::optional<double> norm_of_gradients(int64_t step) {
    if (!config_.optimizer.clip && !scaler_) return std::nullopt;
    constexpr double kNoClip = std::numeric_limits<double>::infinity();
    const double norm = strategy_->clip_grad_norm(config_.optimizer.clip.value_or(kNoClip),
                                                  config_.optimizer.norm_type);
    if (hashes_) hashes_->record_norm(step, norm);
    if (hashes_) hashes_->record(What::clipped, step, *strategy_);
    return norm;
  }

  // Makes the pending update, and prints the step. Calls no collective. Returns the norm of the
  // gradients if it is known; nothing if the step was skipped.
  std::optional<double> finish_step() {
    auto [step, span, optimizer_span, start, loss, norm] = *pending_;
    const bool skip = scaler_ && scaler_->scale() > 1 && !std::isfinite(*norm);
    if (skip) {
      strategy_->skip_step();
      norm.reset();
    } else {
      strategy_->step();
    }
    pending_.reset();
    steps_done_ = step + 1;
    if (meter_) meter_->end_optimizer();
    if (hashes_) hashes_->record(What::updated, step, *strategy_);
    if (scaler_) update_scaler(step, !skip);
    end_span(optimizer_span);
    live_bytes::enter(Phase::init);  // of no step
    add_loss(loss.mean());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    seconds_ += seconds.count();
    end_span(span);
    if (meter_) meter_->end_step();
    last_log_ = take_log();
    if (!leads()) return norm;
    const double tokens_per_s =
        static_cast<double>(config_.training.batch * config_.training.seq) / seconds.count();
    telemetry_.step(step, losses_.back(), tokens_per_s, norm, live_bytes::now().total);
    if (log_) begin_log_line(step, tokens_per_s, norm);
    return norm;
  }

  void add_loss(double loss) {
    losses_.push_back(loss);
    if (std::ssize(losses_) > kToldLosses) losses_.erase(losses_.begin());
  }

  void update_scaler(int64_t step, bool finite) {
    const int64_t before = scaler_->scale();
    scaler_->update(finite);
    strategy_->set_loss_scale(scaler_->scale());
    if (!config_.checkpoint.dir.empty()) settings_["loss_scaler"] = to_json(*scaler_);
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
    if (config_.training.allow_nan || (finite_loss && std::isfinite(norm.value_or(0)))) return;
    std::string what = "the norm of the gradients is " + std::to_string(norm.value_or(0));
    if (!finite_loss) {
      const auto broken = gather_from_ranks(*comm_, !std::isfinite(loss.own()));
      std::string ranks;
      for (size_t rank = 0; rank < broken.size(); ++rank)
        if (broken[rank] != 0) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
      what = "the loss is " + std::to_string(loss.mean()) + " (not finite on rank " + ranks + ")";
    }
    what += " " + when + "; try a smaller --lr, set --clip, or go on with --allow-nan";
    if (leads()) telemetry_.fail(what);
    if (log_) log_->write(log_line_);
    if (log_) log_->write({{"failure", what}});
    // The first rank that ends by an exception ends the others: not before the file is written.
    comm_->barrier(kMetrics).wait();
    throw std::runtime_error("rank " + std::to_string(comm_->rank()) + " ended the run: " + what);
  }

  // A step whose update this rank has all for, but has not made.
  struct Pending {
    int64_t step;
    uint64_t span, optimizer_span;
    std::chrono::steady_clock::time_point start;
    MeanOverRanks loss;
    std::optional<double> norm;
  };

  const TrainConfig& config_;
  const RankContext& context_;
  const nlohmann::ordered_json& handed_;         // null: this rank begins
  const std::optional<ModelTraces>& traces_;     // none: they could not be rehearsed
  std::shared_ptr<Communicator> comm_;           // of all ranks
  std::shared_ptr<Communicator> strategy_comm_;  // the same, unless the model has replicas
  std::shared_ptr<Dataset> dataset_;
  std::optional<LossScaler> scaler_;
  int64_t skipped_steps_{};
  std::optional<HashRecorder> hashes_;  // if config says so
  Workload workload_;
  std::optional<HeldOut> held_out_;  // what is evaluated while the model is trained
  std::optional<Profile> profile_;   // of rank 0, in the last steps
  nlohmann::ordered_json settings_;  // that checkpoints record; on rank 0, if any are saved
  Telemetry telemetry_;
  std::optional<RunLog> log_;        // on rank 0, if config says so
  std::optional<StepMeter> meter_;   // the same
  nlohmann::ordered_json log_line_;  // of the last step
  std::unique_ptr<Strategy> strategy_;
  std::vector<double> losses_;  // the last kToldLosses
  double seconds_{};            // of the steps so far
  std::vector<Call> last_log_;  // the collectives of the last step
  double sum_before_{};         // of the parameters
  std::optional<Pending> pending_;
  std::vector<StateRange> ranges_;  // of the strategy, if another rank may take this one's place
  int64_t steps_done_{config_.checkpoint.first_step}, followed_up_{config_.checkpoint.first_step};
};

}  // namespace

void train_rank(const TrainConfig& config, const FsdpImplementation& fsdp,
                const RankContext& context, const Rehearsed& run,
                const nlohmann::ordered_json& handed) {
  TrainingRun(config, fsdp, context, run, handed)();
}

}  // namespace fsdp
