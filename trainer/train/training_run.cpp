#include <base/text.h>
#include <comm/communicator.h>
#include <diff/hash_recorder.h>
#include <hosts/handover.h>
#include <memory/live_bytes.h>
#include <report/parameter_summary.h>
#include <report/telemetry.h>
#include <strategies/run_data.h>
#include <strategies/strategy.h>
#include <trace/recorder.h>
#include <train/checkpoint_room.h>
#include <train/checkpoint_saver.h>
#include <train/checkpoints.h>
#include <train/counted_run.h>
#include <train/keep_fp32_check.h>
#include <train/make_strategy.h>
#include <train/memory_check.h>
#include <train/muon_groups.h>
#include <train/one_run_check.h>
#include <train/profile.h>
#include <train/rank_metrics.h>
#include <train/run_progress.h>
#include <train/run_receipt.h>
#include <train/run_report.h>
#include <train/run_workload.h>
#include <train/step_meter.h>
#include <train/surviving_run.h>
#include <train/traced_model.h>
#include <train/training_run.h>
#include <train/validation.h>
#include <train/watch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

nlohmann::ordered_json to_json(const LossScaler& scaler) {
  return {{"scale", scaler.scale()},
          {"growth_interval", scaler.growth_interval()},
          {"finite_steps", scaler.finite_steps()}};
}

// With --profile, the profiler records the last kProfiledSteps steps of the run.
constexpr int64_t kProfiledSteps = 2;
// A key in the log line of the first step: the result of the evaluation before training.
constexpr const char* kHeldOutBefore = "held_out_before";

// The training on one rank, from the creation of the model to the report at the end.
class TrainingRun {
 public:
  TrainingRun(const TrainConfig& config, const FsdpImplementation& fsdp, const RankContext& context,
              const TracedModel& run, const nlohmann::ordered_json& handed)
      : config_(config),
        context_(context),
        traces_(run.traces),
        comm_(Communicator::create(context, config.ranks.comm)),
        strategy_comm_(strategy_communicator(context, config, comm_)),
        survival_(context, *comm_, handed, config.checkpoint.first_step),
        dataset_(make_dataset(config)),
        scaler_(config.precision.loss_scaler),
        reported_{config.end_step(), config.reports.log_every},
        telemetry_(reported_, leads() ? config.reports.json : "",
                   /*lines_only=*/context.hosts != nullptr),
        saver_(config, *comm_, [this](const std::string& line) { say(line); }) {
    require_one_run(config, context, *comm_);
    open_log();
    if (auto clock = std::dynamic_pointer_cast<FlopClock>(config.ranks.comm.clock))
      counted_.emplace(std::move(clock));
    make_workload(fsdp, run);
    const std::string muon = describe_muon(config, run.layout);
    if (!survival_.takes_over()) {
      say(description(config, context, transports()));
      say(muon);
    }
    require_resources(run);
    strategy_ = make_strategy(config, fsdp, workload_, run.layout, strategy_comm_);
    check_keep_fp32(config, run.layout);
    if (scaler_) strategy_->set_loss_scale(scaler_->scale());
    if (config.data.eval_every > 0) held_out_.emplace(config, *dataset_);
    if (leads() && !config.checkpoint.dir.empty()) settings_ = settings_of_run(config);
    if (!survival_.takes_over()) say_size();
  }

  void operator()() {
    try {
      run();
      survival_.end();
    } catch (const std::exception&) {
      survival_.save([this] { return progress_json(); });
      throw;
    }
  }

 private:
  // ---- the training loop ----

  void run() {
    survival_.takes_over() ? take_over() : begin();
    if (config_.training.only_microbatch) return compute_only_microbatch();
    config_.training.steps == 0 ? evaluate() : evaluate_held_out_before_training();
    if (counted_) counted_->begin();
    for (int64_t step = config_.checkpoint.first_step; step < config_.end_step(); ++step) {
      begin_profile_if_due(step);
      train_step(step);
      write_profile_if_due(step + 1);
      outside_of_steps([&] { evaluate_held_out_if_due(step + 1); });
      log_step(step + 1);
      outside_of_steps([&] { saver_.after_step(step + 1, settings_, *strategy_); });
      survival_.after_step(step + 1);
      if (watch_) report_watch(watch_->after_step(step + 1));
    }
    if (watch_) report_watch(watch_->end());
    if (!config_.reports.receipt.empty()) say(write_run_receipt(config_, context_, *comm_));
    report();
  }

  // Calls `work`, which is not a part of a step, so that a CountedRun does not count its time.
  void outside_of_steps(const std::function<void()>& work) {
    counted_ ? counted_->leave_out(work) : work();
  }

  // The step that train_step() computes now.
  struct Step {
    int64_t index;  // number of the step, counted from 0
    uint64_t span, optimizer_span{};
    int64_t start;  // [ns] of the run's clock, which counts the time with --flops
  };

  void train_step(int64_t index) {
    Step step = begin_step(index);
    const MeanOverRanks loss = mean_of(strategy_->forward_backward(index));
    begin_optimizer(step);
    std::optional<double> norm = clip_gradients(index);
    const bool skip = scaler_ && scaler_->scale() > 1 && !std::isfinite(*norm);
    if (skip) norm.reset();
    const auto update = [=, this] {
      skip ? strategy_->skip_step() : strategy_->step();
      survival_.after_update(index + 1);
      end_step(step, loss, norm, skip);
    };
    survival_.before_update(update);
    update();
    if (index == config_.checkpoint.first_step) {
      comm_->end_first_iteration();
      strategy_comm_->end_first_iteration();
    }
    require_finite(
        "in step " + std::to_string(index + 1) + " of " + std::to_string(config_.training.steps),
        loss, norm);
  }

  // ---- before the training loop ----

  void open_log() {
    if (!leads() || config_.reports.log.empty()) return;
    log_.emplace(config_.reports.log);
    if (!survival_.takes_over()) log_->go_on_after(config_.checkpoint.first_step);
    meter_.emplace(config_.ranks.comm.clock);
  }

  void make_workload(const FsdpImplementation& fsdp, const TracedModel& run) {
    workload_ = workload_of_run(config_, fsdp, meter_ ? meter_->measured(dataset_) : dataset_);
    if (counted_) workload_ = counted_->observed(workload_);
    const ReportsConfig& reports = config_.reports;
    const std::string folder = reports.receipt.empty() ? reports.hashes : folder_of_ranks(config_);
    // A rank that ./fsdp why replays has no folder, and still observes the captured event.
    if (folder.empty() && reports.captured_event.empty()) return;
    hashes_.emplace(config_, run.layout, settings_of_run(config_), context_.rank, folder,
                    events_of_receipt(config_));
    if (leads() && reports.watch > 0) watch_.emplace(config_, context_);
    workload_ = hashes_->observed(workload_);
  }

  // Throws if the machine has too little memory for the run, or if the disk has too little room for
  // its checkpoints.
  void require_resources(const TracedModel& run) {
    if (!config_.on_cuda()) require_memory(run);
    if (!leads() || survival_.takes_over() || config_.checkpoint.dir.empty()) return;
    remove_unfinished_checkpoints(config_.checkpoint.dir);
    require_room_for_checkpoints(config_, run.layout, room_for_checkpoints(config_));
  }

  // Throws if this machine has too little memory. All ranks of a host find the same error, so only
  // the first rank of the host throws it. The other ranks wait in a barrier, which fails when the
  // first rank has ended.
  void require_memory(const TracedModel& run) const {
    const auto here = context_.local_ranks();
    try {
      require_enough_memory(config_, run.layout, run.traces, transports(),
                            static_cast<int>(here.size()), memory_of_machine());
    } catch (const std::runtime_error&) {
      if (context_.rank != here.front()) comm_->barrier(kMetrics).wait();
      throw;
    }
  }

  void say_size() {
    char live[48];
    std::snprintf(live, sizeof live, "%.1f MB", static_cast<double>(live_bytes::now().total) / 1e6);
    say(size_of_model(strategy_->layout()) + ", " + live + " live on each rank");
  }

  void begin() {
    say(load_init(config_, *strategy_, *comm_));
    say(resume(config_, *strategy_, *comm_));
    if (hashes_) hashes_->record(TensorKind::initial, config_.checkpoint.first_step, *strategy_);
    ParameterSummary before;
    strategy_->full_parameters([&](const auto&, const at::Tensor& p) { before.add(p); });
    progress_.sum_before = before.sum_fp64();
  }

  // ---- parts of a training step ----

  Step begin_step(int64_t index) {
    if (index == config_.checkpoint.first_step + 1) {
      // The optimizer state was allocated in the first step, and from the second step on it is
      // alive in every phase. So the peaks of the phases are measured anew.
      for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer})
        live_bytes::reset(phase);
    }
    take_log();
    survival_.before_step(*strategy_);
    if (meter_) meter_->begin_step();
    const OptimizerConfig& optimizer = config_.optimizer;
    if (optimizer.lr_factor) *optimizer.lr_factor = config_.lr_of(index) / optimizer.lr;
    const uint64_t span = begin_span(EventKind::step, "", static_cast<uint64_t>(index));
    return {.index = index, .span = span, .start = config_.ranks.comm.clock->now()};
  }

  // Called in each step when the gradients have been reduced.
  void begin_optimizer(Step& step) {
    if (hashes_ && !(config_.optimizer.step_in_backward && config_.ranks.mode == Mode::fsdp))
      hashes_->record(TensorKind::reduced, step.index, *strategy_);
    step.optimizer_span = begin_span(EventKind::optimizer, "");
    if (meter_) meter_->begin_optimizer();
  }

  // Clips the gradients, if the config asks for it. Returns their norm before clipping, or nothing
  // if the run has neither clipping nor a loss scaler, because then the norm is not computed.
  std::optional<double> clip_gradients(int64_t step) {
    const OptimizerConfig& optimizer = config_.optimizer;
    if (!optimizer.clip && !scaler_) return std::nullopt;
    constexpr double kNoClip = std::numeric_limits<double>::infinity();
    const double norm =
        strategy_->clip_grad_norm(optimizer.clip.value_or(kNoClip), optimizer.norm_type);
    if (hashes_) hashes_->record_norm(step, norm);
    if (hashes_) hashes_->record(TensorKind::clipped, step, *strategy_);
    return norm;
  }

  // Called in each step when the update has been made or skipped. Records and prints the step.
  // Calls no collective.
  void end_step(const Step& step, const MeanOverRanks& loss, std::optional<double> norm,
                bool skipped) {
    if (meter_) meter_->end_optimizer();
    if (hashes_) hashes_->record(TensorKind::updated, step.index, *strategy_);
    if (scaler_) update_scaler(step.index, !skipped);
    end_span(step.optimizer_span);
    live_bytes::enter(Phase::init);  // memory allocated from here on counts for no step
    progress_.add_loss(loss.mean());
    const double seconds = static_cast<double>(config_.ranks.comm.clock->now() - step.start) / 1e9;
    progress_.seconds += seconds;
    end_span(step.span);
    if (meter_) meter_->end_step();
    last_log_ = take_log();
    if (!leads()) return;
    const auto tokens = static_cast<double>(config_.training.batch * config_.training.seq);
    const double tokens_per_s = tokens / seconds;
    telemetry_.step(step.index, progress_.losses.back(), tokens_per_s, norm,
                    live_bytes::now().total);
    if (log_) make_log_line(step.index, tokens_per_s, norm);
  }

  void update_scaler(int64_t step, bool finite) {
    const int64_t before = scaler_->scale();
    scaler_->update(finite);
    strategy_->set_loss_scale(scaler_->scale());
    if (!config_.checkpoint.dir.empty()) settings_["loss_scaler"] = to_json(*scaler_);
    if (finite) return;
    ++progress_.skipped_steps;
    say("step " + std::to_string(step + 1) + " is skipped: with a loss scale of " +
        std::to_string(before) + " its gradients are not finite; the scale becomes " +
        std::to_string(scaler_->scale()));
  }

  void make_log_line(int64_t step, double tokens_per_s, std::optional<double> norm) {
    // If the run was evaluated before training, the result goes into the log line of the first
    // step.
    const auto before = std::exchange(progress_.log_line, {});
    auto& line = progress_.log_line;
    line = {{"step", step}, {"loss", progress_.losses.back()}};
    if (step == 0 && before.contains(kHeldOutBefore)) line[kHeldOutBefore] = before[kHeldOutBefore];
    if (norm) line["grad_norm"] = *norm;
    line["lr"] = config_.lr_of(step);
    line["tokens_per_s"] = tokens_per_s;
    line.update(meter_->json());
    line["live_bytes"] = live_bytes_now_and_peak();
  }

  // Throws if the mean loss or the norm of the gradients is not finite. The mean loss and the norm
  // are equal on all ranks, so all ranks throw in the same step.
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
    what += " " + when + "; try a smaller --lr, set --clip, or continue with --allow-nan";
    if (leads()) telemetry_.fail(what);
    if (log_) log_->write(progress_.log_line);
    if (log_) log_->write({{"failure", what}});
    // When a rank throws, the launcher ends the other ranks. So all ranks wait here until rank 0
    // has written the JSON file and the log.
    comm_->barrier(kMetrics).wait();
    throw std::runtime_error("rank " + std::to_string(comm_->rank()) +
                             " stopped the training: " + what);
  }

  // For --watch: prints `line`, which Watch returned. On rank 0, throws if Watch has found that a
  // number of the run differs from the number that the auditing process has computed. Only rank 0
  // has the result of the audit, so the other ranks do not throw: the launcher ends them.
  void report_watch(const std::string& line) {
    saver_.hold(watch_->step_in_use());
    say(line);
    if (watch_->wrong().empty()) return;
    telemetry_.fail(watch_->wrong());
    if (log_) log_->write({{"failure", watch_->wrong()}});
    throw std::runtime_error("rank 0 stopped the training: " + watch_->wrong());
  }

  // ---- evaluation, profile and report ----

  // For --only-microbatch: computes the loss and the gradients of one microbatch, whose hashes an
  // audit compares.
  void compute_only_microbatch() {
    const int64_t step = config_.checkpoint.first_step, number = step + 1;
    const double loss = strategy_->forward_backward(step).item<double>();
    char text[96];
    std::snprintf(text, sizeof text, "loss of microbatch %d of step %lld: %.10f",
                  *config_.training.only_microbatch, static_cast<long long>(number), loss);
    say(text);
  }

  // For a run without steps: evaluates the loss of the parameters with which the run begins.
  void evaluate() {
    comm_->take_log();
    live_bytes::enter(Phase::forward);
    const MeanOverRanks loss =
        mean_of(strategy_->evaluate([this](Module& model, int microbatch, int microbatches) {
          return workload_.loss(model, microbatch, microbatches, 0);
        }));
    last_log_ = comm_->take_log();
    if (leads()) telemetry_.evaluated(loss.mean());
    progress_.log_line = {{"step", 0}, {"eval", true}, {"loss", loss.mean()}};
    evaluate_held_out_before_training();
    if (log_ && std::isfinite(loss.mean())) log_->write(progress_.log_line);
    require_finite("before training", loss, std::nullopt);
  }

  // Evaluates the parameters with which the run begins on the held-out rows, so that the user can
  // compare later evaluations with it.
  void evaluate_held_out_before_training() {
    if (!config_.evaluates_before_training() || survival_.takes_over()) return;
    say("held out, before training: " + to_string(evaluate_held_out(kHeldOutBefore)));
  }

  void evaluate_held_out_if_due(int64_t steps) {
    const bool last = steps == config_.end_step();
    if (!held_out_ || (steps % config_.data.eval_every != 0 && !last)) return;
    const HeldOutResult result = evaluate_held_out("held_out");
    char seconds[48];
    std::snprintf(seconds, sizeof seconds, " (%.1f s of training)", progress_.seconds);
    say("held out, after step " + std::to_string(steps) + ": " + to_string(result) + seconds);
  }

  // Evaluates the held-out rows. `field`: the key of the result in the step's log line.
  HeldOutResult evaluate_held_out(const char* field) {
    const HeldOutResult result = held_out_->evaluate(*strategy_, *comm_);
    if (log_) progress_.log_line[field] = {{"loss", result.loss}, {"accuracy", result.accuracy}};
    return result;
  }

  // Writes the log line of the last step if --log-every selects the step or if the step was
  // evaluated.
  void log_step(int64_t steps) {
    if (log_ && (reported_.have(steps) || progress_.log_line.contains("held_out")))
      log_->write(progress_.log_line);
  }

  void begin_profile_if_due(int64_t step) {
    const int64_t first =
        std::max(config_.checkpoint.first_step, config_.end_step() - kProfiledSteps);
    if (step == first && leads() && !config_.reports.profile.empty())
      profile_.emplace(config_.ranks.comm.device);
  }

  void write_profile_if_due(int64_t steps) {
    if (profile_ && steps == config_.end_step()) profile_->write(config_.reports.profile);
  }

  void report() {
    const auto counted = counted_ ? counted_->end(*comm_) : nlohmann::ordered_json();
    auto line = final_line(config_, *strategy_, *comm_, progress_.sum_before, last_log_, traces_,
                           transports());
    if (counted_) line["counted"] = counted;
    if (scaler_) {
      line["loss_scaler"] = to_json(*scaler_);
      line["skipped_steps"] = progress_.skipped_steps;
    }
    if (!leads()) return;
    auto summary = summary_of(line);
    if (const auto compared = loss_beside_entropy(*dataset_, progress_.losses))
      summary.push_back(*compared);
    telemetry_.finish(line, summary);
  }

  // ---- taking the place of a failed rank, after a host was lost ----

  // Returns the run's state except its tensors, for the rank that will take this rank's place. Of
  // the losses, it has only the last kReportedLosses.
  nlohmann::ordered_json progress_json() const {
    auto run = progress_.to_json();
    run["lines"] = telemetry_.lines();
    if (scaler_) run["loss_scaler"] = to_json(*scaler_);
    run["saving"] = saver_.is_saving();
    return run;
  }

  void take_over() {
    const auto& left = survival_.take_over(*strategy_);
    progress_ = RunProgress::from_json(left);
    telemetry_.go_on_after(left["lines"].get<std::string>());
    const int64_t step = config_.checkpoint.first_step;
    say("continues after step " + std::to_string(step) + " with " +
        counted(config_.ranks.world, "rank") + " on " +
        counted(static_cast<int64_t>(context_.hosts->names.size()), "host"));
    // If the loss of the host has interrupted an asynchronous save, its files may be incomplete. So
    // the run saves the state after this step instead.
    const bool save =
        (saver_.is_due(step) || left["saving"]) && latest_step(config_.checkpoint.dir) != step;
    const auto remaining = survival_.remaining_after_last_step(save);
    if (remaining.evaluation) {
      evaluate_held_out_if_due(step);
      if (log_) log_->write(progress_.log_line);
    }
    if (remaining.save) {
      if (leads()) remove_unfinished_checkpoints(config_.checkpoint.dir);
      saver_.save(step, settings_, *strategy_);
    }
    survival_.after_step(step);
  }

  // ---- small helpers ----

  bool leads() const { return comm_->rank() == 0; }
  Transports transports() const { return {*comm_, *strategy_comm_}; }
  void say(const std::string& line) {
    if (leads() && !line.empty()) telemetry_.say(line);
  }

  std::vector<Call> take_log() {
    std::vector<Call> log = comm_->take_log();
    // `others`: the calls of strategy_comm_; empty if strategy_comm_ and comm_ are the same object,
    // whose calls `log` has already.
    const auto others = strategy_comm_->take_log();
    log.insert(log.end(), others.begin(), others.end());
    return log;
  }

  MeanOverRanks mean_of(const at::Tensor& losses) const {
    const int parts = config_.batch_partition().microbatches();
    return {*comm_, losses, parts / comm_->world_size()};
  }

  const TrainConfig& config_;
  const RankContext& context_;
  // The model's traces, from which memory is predicted; empty: activations are not predicted.
  const std::optional<ModelTraces>& traces_;
  std::shared_ptr<Communicator> comm_;  // communicator of all ranks
  // Communicator of the strategy: comm_ or, if fsdp has replicas, a communicator with replicas.
  std::shared_ptr<Communicator> strategy_comm_;
  SurvivingRun survival_;
  std::shared_ptr<Dataset> dataset_;
  std::optional<LossScaler> scaler_;
  std::optional<HashRecorder> hashes_;  // records hashes; empty without --hashes and --receipt
  std::optional<Watch> watch_;          // audits the run; empty unless this is rank 0 with --watch
  Workload workload_;
  // Measures the time that --flops simulates and the memory beside tensors; empty without --flops.
  std::optional<CountedRun> counted_;
  std::optional<Validation> held_out_;  // the held-out rows; empty if the run does not evaluate
  // The running profiler; empty except on rank 0, in the last steps, with --profile.
  std::optional<Profile> profile_;
  // The settings that checkpoints record, as settings_of_run() returns them. Set on rank 0 if the
  // run saves checkpoints.
  nlohmann::ordered_json settings_;
  ReportedSteps reported_;
  Telemetry telemetry_;
  CheckpointSaver saver_;
  // The log, and the object that measures steps for it; empty unless this is rank 0 with --log.
  std::optional<RunLog> log_;
  std::optional<StepMeter> meter_;
  std::unique_ptr<Strategy> strategy_;
  // The collectives of the last step or, if no step was trained, of the evaluation before training.
  std::vector<Call> last_log_;
  RunProgress progress_;
};

}  // namespace

void train_rank(const TrainConfig& config, const FsdpImplementation& fsdp,
                const RankContext& context, const TracedModel& run,
                const nlohmann::ordered_json& handed) {
  TrainingRun(config, fsdp, context, run, handed)();
}

}  // namespace fsdp
