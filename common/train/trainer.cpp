#include <base/whole_file.h>
#include <cuda/gpu.h>
#include <data/dataset.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <memory/poison.h>
#include <nn/models.h>
#include <prediction/link_report.h>
#include <prediction/prediction.h>
#include <report/parameter_summary.h>
#include <report/telemetry.h>
#include <trace/recorder.h>
#include <trace/timeline.h>
#include <train/trainer.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

std::shared_ptr<Dataset> make_dataset(const TrainConfig& config) {
  if (config.published) {
    return make_published_dataset(model_info(config.model).vocabulary, config.seed);
  }
  return std::make_shared<TextDataset>(config.text, config.seed);
}

std::unique_ptr<Strategy> make_strategy(const TrainConfig& config, const Stack& stack,
                                        const std::shared_ptr<Communicator>& comm) {
  if (config.mode == "fsdp") return stack.make_fsdp_strategy(config, comm);
  if (config.mode == "ddp") return make_ddp_strategy(config, stack.shard_layout(config), comm);
  return make_single_strategy(config, stack.shard_layout(config));
}

// A mean over ranks. On the CPU it is known at once; on CUDA it is read when it is asked for, which
// lets the CPU wait for all that the GPU was given to do.
class Mean {
 public:
  // Of the ranks' values, [], which are added in rank order.
  Mean(Communicator& comm, at::Tensor value) : world_size_(comm.world_size()) {
    value = value.to(at::kDouble).reshape({1});
    comm.all_reduce(value, kMetrics).wait();
    if (value.is_cpu()) {
      sum_ = value.item<double>();
    } else {
      unread_ = std::move(value);
    }
  }

  double value() const { return (unread_.defined() ? unread_.item<double>() : sum_) / world_size_; }

 private:
  int world_size_;
  double sum_{};
  at::Tensor unread_;  // [1]; undefined on the CPU
};

std::vector<int64_t> gather_from_ranks(Communicator& comm, int64_t value) {
  const auto options = at::TensorOptions(at::kLong).device(comm.device());
  at::Tensor all = at::empty({comm.world_size()}, options);
  comm.all_gather_into(all, at::full({1}, value, options), kMetrics).wait();
  all = all.cpu();
  return {all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + all.numel()};
}

Json live_bytes_json(const PredictedBytes& predicted, int64_t& mismatches) {
  Json phases;
  for (size_t phase = 0; phase < kPhases; ++phase) {
    Json classes;
    const LiveBytes measured = live_bytes::peak(static_cast<Phase>(phase));
    for (size_t cls = 0; cls < kMemoryClasses; ++cls) {
      const auto& expected = predicted[phase][cls];
      classes[to_string(static_cast<MemoryClass>(cls))] = {
          {"predicted", expected ? Json(*expected) : Json(nullptr)},
          {"measured", measured.by_class[cls]}};
      mismatches += expected && *expected != measured.by_class[cls];
    }
    phases[to_string(static_cast<Phase>(phase))] = classes;
  }
  return phases;
}

// The bytes of one step by operation, or by label for what serves no unit.
std::map<std::string, int64_t> bytes_by_key(const std::vector<Call>& log) {
  std::map<std::string, int64_t> bytes;
  for (const Call& call : log) {
    const std::string unit = call.unit.str();
    const std::string label = call.unit.is_label() ? unit.substr(1, unit.size() - 2) : "";
    bytes[label.empty() ? to_string(call.operation) : label] += call.bytes;
  }
  return bytes;
}

Json units_json(const ShardLayout& layout) {
  Json units = Json::array();
  for (size_t i = 0; i < layout.units.size(); ++i) {
    int64_t numel = 0;
    for (const auto& parameter : layout.parameters)
      numel += parameter.unit == i ? parameter.numel : 0;
    units.push_back({{"name", layout.units[i].name},
                     {"numel", numel},
                     {"padded", layout.units[i].padded_numel},
                     {"root", layout.units[i].root}});
  }
  return units;
}

// One rank's run.
class Run {
 public:
  Run(const TrainConfig& config, const Stack& stack, const RankContext& context,
      const std::string& commit)
      : config_(config),
        commit_(commit),
        comm_(Communicator::create(context, config.comm)),
        dataset_(make_dataset(config)),
        telemetry_(config) {
    if (leads()) telemetry_.begin(comm_->backend());
    strategy_ = make_strategy(config, stack, comm_);
    if (leads()) telemetry_.built(strategy_->layout().numel(), live_bytes::now().total);
  }

  void operator()() {
    ParameterSummary before;
    strategy_->full_parameters([&](const auto&, const at::Tensor& p) { before.add(p); });
    if (config_.steps == 0) evaluate();
    for (int64_t step = 0; step < config_.steps; ++step)
      train(step);
    finish(before);
  }

 private:
  bool leads() const { return comm_->rank() == 0; }
  Batch batch(int64_t step) const { return dataset_->batch(step, config_.batch, config_.seq); }

  void evaluate() {
    comm_->take_log();
    const double own = strategy_->evaluate(batch(0));
    const Mean loss(*comm_,
                    at::full({}, own, at::TensorOptions(at::kDouble).device(comm_->device())));
    last_log_ = comm_->take_log();
    if (leads()) telemetry_.evaluated(loss.value());
  }

  void train(int64_t step) {
    const Batch tokens = batch(step);
    if (step == 1) {  // from here on there is optimizer state in every phase
      for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
        live_bytes::reset(phase);
      }
    }
    comm_->take_log();
    const uint64_t span = begin_span(EventKind::step, "", static_cast<uint64_t>(step));
    const auto start = std::chrono::steady_clock::now();
    const Mean mean(*comm_, strategy_->forward_backward(tokens));
    const std::optional<double> norm = update();
    const double loss = mean.value();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    end_span(span);
    last_log_ = comm_->take_log();
    losses_.push_back(loss);
    if (step == 0) comm_->end_first_iteration();
    const auto count = static_cast<double>(tokens.inputs.numel());
    if (leads()) {
      telemetry_.step(step, loss, count / seconds.count(), norm, live_bytes::now().total);
    }
  }

  // The norm of the gradients, if they are clipped.
  std::optional<double> update() {
    const uint64_t span = begin_span(EventKind::optimizer, "");
    std::optional<double> norm;
    if (config_.clip) norm = strategy_->clip_grad_norm(*config_.clip);
    strategy_->step();
    end_span(span);
    return norm;
  }

  void finish(const ParameterSummary& before) {
    int64_t mismatches = 0;
    // On CUDA the bytes of the GPU are counted: no transport has a buffer there.
    const std::string backend = config_.on_cuda() ? "nccl" : comm_->backend();
    const auto predicted = predict_live_bytes(config_, strategy_->layout(), comm_->rank(), backend,
                                              config_.steps <= 1);
    const Json live = live_bytes_json(predicted, mismatches);
    const auto peaks = gather_from_ranks(*comm_, live_bytes::peak_total());
    const auto all_mismatches = gather_from_ranks(*comm_, mismatches);
    const auto allocator = gpu::allocator_peaks().value_or(gpu::AllocatorPeaks());
    const auto allocated = gather_from_ranks(*comm_, allocator.allocated);
    const auto reserved = gather_from_ranks(*comm_, allocator.reserved);
    ParameterSummary after;
    strategy_->full_parameters([&](const auto&, const at::Tensor& p) { after.add(p); });
    if (!leads()) return;

    Json line{{"final", true},
              {"param_sum", after.sum_fp32()},
              {"param_sum_change", after.sum_fp64() - before.sum_fp64()},
              {"param_sha256", after.sha256()},
              {"peak_bytes", peaks},
              {"live_bytes", live},
              {"live_bytes_mismatches",
               std::accumulate(all_mismatches.begin(), all_mismatches.end(), int64_t{0})},
              {"comm_bytes", bytes_by_key(last_log_)},
              {"comm_bytes_predicted", predict_comm_bytes(config_, strategy_->layout())},
              {"units", units_json(strategy_->layout())},
              {"params", strategy_->layout().numel()},
              {"world", config_.world},
              {"threads", config_.threads},
              {"backend", comm_->backend()},
              {"batch", config_.batch},
              {"seq", config_.seq},
              {"steps", config_.steps},
              {"mode", config_.mode},
              {"model", config_.model},
              {"commit", commit_.empty() ? Json(nullptr) : Json(commit_)}};
    report_link(line);
    if (config_.on_cuda()) {
      line["caching_allocator"] = {{"peak_allocated", allocated}, {"peak_reserved", reserved}};
    }
    summarize(after, line);
    telemetry_.finish(std::move(line));
  }

  // What a step took over a simulated link, measured and predicted.
  void report_link(Json& line) {
    if (Recorder::current() == nullptr) return;
    const auto times = step_times(config_, strategy_->layout(), Recorder::current()->events());
    if (!times) return;
    line["step_seconds"] = {{"measured", times->measured},
                            {"predicted", times->predicted},
                            {"predicted_without_prefetch", times->without_prefetch}};
    char text[160];
    std::snprintf(text, sizeof text,
                  "a step over the link: %.1f ms, predicted %.1f ms; predicted without prefetch "
                  "%.1f ms",
                  times->measured * 1e3, times->predicted * 1e3, times->without_prefetch * 1e3);
    telemetry_.note(text);
  }

  void summarize(const ParameterSummary& parameters, const Json& line) {
    char text[160];
    std::snprintf(text, sizeof text, "param sum %.6f (change %+.6f), sha256 %s",
                  parameters.sum_fp32(), line["param_sum_change"].get<double>(),
                  parameters.sha256().substr(0, 16).c_str());
    telemetry_.note(text);
    std::string bytes = "bytes per rank: peak " + with_commas(line["peak_bytes"][0]);
    for (const auto& [key, value] : line["comm_bytes"].items()) {
      bytes += ", " + key + " " + with_commas(value);
    }
    telemetry_.note(bytes + " (last step)");
    if (config_.on_cuda()) {
      const Json& peaks = line["caching_allocator"];
      telemetry_.note("caching allocator: peak " + with_commas(peaks["peak_allocated"][0]) +
                      " allocated, " + with_commas(peaks["peak_reserved"][0]) + " reserved");
    }
    const auto* text_data = dynamic_cast<const TextDataset*>(dataset_.get());
    if (text_data == nullptr || losses_.empty()) return;
    const size_t last = std::min<size_t>(losses_.size(), 20);
    const double mean =
        std::accumulate(losses_.end() - static_cast<std::ptrdiff_t>(last), losses_.end(), 0.0) /
        static_cast<double>(last);
    std::snprintf(
        text, sizeof text,
        "mean loss of the last %zu steps %.4f, unigram entropy of the text %.4f (nats per byte)",
        last, mean, text_data->unigram_entropy());
    telemetry_.note(text);
  }

  const TrainConfig& config_;
  const std::string& commit_;
  std::shared_ptr<Communicator> comm_;
  std::shared_ptr<Dataset> dataset_;
  Telemetry telemetry_;
  std::unique_ptr<Strategy> strategy_;
  std::vector<double> losses_;
  std::vector<Call> last_log_;
};

std::string current_commit() {
  std::string commit(40, '\0');
  FILE* git = popen("git -C \"${FSDP_ROOT:-.}\" rev-parse HEAD 2>/dev/null", "r");
  if (git == nullptr) return "";
  const size_t read = std::fread(commit.data(), 1, commit.size(), git);
  pclose(git);
  return read == commit.size() ? commit : "";
}

// The timeline of a run, which this process writes when the ranks have ended, however they did.
class Trace {
 public:
  Trace(const TrainConfig& config, int processes) : config_(config) {
    if (!config.trace.empty() || config.comm.link) log_ = EventLog::create(processes);
  }

  std::optional<Recorder> record(int rank) const {
    if (log_ == nullptr) return std::nullopt;
    return std::optional<Recorder>(std::in_place, log_, rank, config_.comm.clock);
  }

  // Returns whether the file was written, if one was asked for.
  bool write(const std::string& failure) const {
    if (config_.trace.empty()) return true;
    uint64_t dropped = 0;
    for (int rank = 0; rank < log_->world_size(); ++rank)
      dropped = std::max(dropped, log_->dropped(rank));
    const Timeline timeline = timeline_of(*log_, title(), failure);
    try {
      write_whole_file(config_.trace, timeline_writer(config_.trace)(timeline));
    } catch (const std::runtime_error& error) {
      std::fprintf(stderr, "fsdp train: --trace %s\n", error.what());
      return false;
    }
    const std::string lost =
        " (without the first " + with_commas(static_cast<int64_t>(dropped)) + " events of a rank)";
    std::printf("timeline: %s%s\n", config_.trace.c_str(), dropped > 0 ? lost.c_str() : "");
    std::fflush(stdout);
    return true;
  }

 private:
  std::string title() const {
    return config_.mode + " of " + config_.model + ", " + std::to_string(config_.world) +
           (config_.world == 1 ? " rank" : " ranks") +
           (config_.mode == "single" ? " played in turn" : "");
  }

  const TrainConfig& config_;
  std::shared_ptr<EventLog> log_;  // null: nobody will read it
};

}  // namespace

int run_training(const TrainConfig& config, const Stack& stack) {
  const std::string commit = config.json.empty() ? "" : current_commit();
  const int processes = config.mode == "single" ? 1 : config.world;
  const Trace trace(config, processes);
  const auto train = [&](const RankContext& context) {
    if (config.on_cuda()) {
      gpu::use_gpu_of(context.rank);
    } else {
      counting_allocator::install();
    }
    live_bytes::enter(Phase::init);
    poison::enable(config.poison);
    at::set_num_threads(config.threads);
    const auto recorder = trace.record(context.rank);
    Run(config, stack, context, commit)();
    return 0;
  };
  return start(processes, train, "fsdp train",
               [&](const std::string& failure) { return trace.write(failure); });
}

}  // namespace fsdp
