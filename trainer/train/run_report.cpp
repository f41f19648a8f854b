#include <base/text.h>
#include <base/todo.h>
#include <cuda/gpu.h>
#include <prediction/link_report.h>
#include <prediction/prediction.h>
#include <report/parameter_summary.h>
#include <report/telemetry.h>
#include <state/whole_state.h>
#include <strategies/run_data.h>
#include <strategies/strategy.h>
#include <trace/recorder.h>
#include <train/rank_metrics.h>
#include <train/run_report.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace fsdp {
namespace {

// Returns for example " (hybrid, 2 replicas of 2 ranks)"; "" in ddp, and if all ranks together have
// one replica of the model.
std::string strategy_text(const TrainConfig& config) {
  if (config.ranks.mode == Mode::ddp || config.shards() == config.ranks.world) return "";
  return std::string(" (") + config.sharding_strategy() + ", " +
         counted(config.ranks.world / config.shards(), "replica") + " of " +
         counted(config.shards(), "rank") + ')';
}

// Returns for example "parameters in bf16 but for ln, gradients sent in fp32, "; "" if parameters
// and gradients are fp32.
std::string precision_text(const TrainConfig& config) {
  const MixedPrecisionPolicy& precision = config.precision.policy;
  if (precision == MixedPrecisionPolicy{}) return "";
  return std::string("parameters in ") + dtype_name(precision.param_dtype) +
         (config.precision.keep_fp32.empty() ? "" : " but for " + config.precision.keep_fp32) +
         ", gradients sent in " + dtype_name(precision.reduce_dtype) + ", ";
}

// Returns the transport between the ranks of a replica, then the transport between replicas if it
// is another one, then the number of hosts if there are several: "gloo" or "shm and gloo on 2
// hosts".
std::string transport_text(const Transports& transports, const RankContext& context) {
  std::string text = transports.shards;
  if (transports.replicas != transports.shards) text += " and " + transports.replicas;
  if (context.hosts && context.hosts->several())
    text += " on " + counted(static_cast<int64_t>(context.hosts->names.size()), "host");
  return text;
}

using Json = nlohmann::ordered_json;

Json beside(std::optional<int64_t> predicted, int64_t measured, int64_t& mismatches) {
  mismatches += predicted && *predicted != measured;
  return {{"predicted", predicted ? Json(*predicted) : Json(nullptr)}, {"measured", measured}};
}

// Returns the predicted and the measured peaks of live bytes, by phase and class, and adds the
// number of those that differ to `mismatches`. `onednn`: the run multiplies 16-bit matrices on the
// CPU with oneDNN, whose scratch memory depends on the processor and is not predicted. Then
// differences in the class `other` and in the totals are not counted.
Json live_bytes_json(const Schedule& step, const Transports& transports, bool onednn,
                     int64_t& mismatches) {
  constexpr auto kOther = static_cast<size_t>(MemoryClass::other);
  int64_t of_onednn = 0;
  const PredictedMemory predicted = predict_memory(step, transports);
  Json phases;
  for (size_t phase = 0; phase < kPhases; ++phase) {
    Json classes;
    const LiveBytes measured = live_bytes::peak(static_cast<Phase>(phase));
    for (size_t cls = 0; cls < kMemoryClasses; ++cls) {
      classes[to_string(static_cast<MemoryClass>(cls))] =
          beside(predicted.bytes[phase][cls], measured.by_class[cls],
                 onednn && cls == kOther ? of_onednn : mismatches);
    }
    classes["total"] =
        beside(predicted.totals[phase], measured.total, onednn ? of_onednn : mismatches);
    phases[to_string(static_cast<Phase>(phase))] = classes;
  }
  return phases;
}

// Returns the bytes of a step's collectives by operation. A call that belongs to no unit is counted
// under its label instead.
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

// Returns the duration of a step over a simulated link, measured and predicted. Returns null if
// there is no such link or no step was recorded.
Json step_seconds(const TrainConfig& config, const ShardLayout& layout) {
  if (Recorder::current() == nullptr) return nullptr;
  const auto times = step_times(config, layout, Recorder::current()->events());
  if (!times) return nullptr;
  return {{"measured", times->measured},
          {"predicted", times->predicted},
          {"predicted_without_prefetch", times->without_prefetch}};
}

// Returns the hash of the parameters and of the optimizer state. Returns null if no step was
// trained, so that no optimizer state is allocated only for the hash. Also returns null if the
// student has not written ShardedOptimizer::state().
Json state_hash(const TrainConfig& config, Strategy& strategy, Communicator& comm) {
  if (config.training.steps == 0) return nullptr;
  try {
    return state_sha256(strategy.state(), comm);
  } catch (const NotStarted&) {
    return nullptr;
  }
}

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char text[160];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

// Returns for example "live bytes: 24 of 24 peaks of rank 0 are as predicted", followed by the
// peaks that differ from the prediction.
std::string predictions_of(const Json& line) {
  int64_t predicted = 0, equal = 0;
  std::string others;
  for (const auto& [phase, classes] : line["live_bytes"].items()) {
    for (const auto& [cls, bytes] : classes.items()) {
      if (bytes["predicted"].is_null()) continue;
      ++predicted;
      if (bytes["predicted"] == bytes["measured"]) {
        ++equal;
      } else {
        others += "; " + phase + ", " + cls + ": " + with_commas(bytes["measured"]) +
                  ", predicted " + with_commas(bytes["predicted"]);
      }
    }
  }
  return "live bytes: " + std::to_string(equal) + " of " + std::to_string(predicted) +
         " peaks of rank 0 are as predicted" + others;
}

// Returns a line with what a run with a FlopClock has cost: the longest time of a rank, the
// shortest time that a rank has computed, and the most bytes of a rank.
// grading/grader/leaderboard.py reads this line.
std::string counted_text(const Json& line) {
  const auto most = [](const Json& of_ranks) {
    return with_commas(*std::ranges::max_element(of_ranks));
  };
  const Json& run = line["counted"];
  return "counted: " + most(run["nanoseconds"]) + " ns for " + counted(line["steps"], "step") +
         "; each rank computed for " + with_commas(*std::ranges::min_element(run["computing"])) +
         " ns, with " + most(line["peak_bytes"]) + " bytes of tensors and " + most(run["besides"]) +
         " bytes of other memory";
}

}  // namespace

std::string description(const TrainConfig& config, const RankContext& context,
                        const Transports& transports) {
  return to_string(config.ranks.mode) + strategy_text(config) + " of " + config.model.name + ", " +
         counted(config.ranks.world, "rank") +
         (config.ranks.mode == Mode::single ? " computed one after another"
                                            : " over " + transport_text(transports, context)) +
         (config.on_cuda() ? " on CUDA, " : ", ") + precision_text(config) + describe_data(config) +
         (config.training.microbatches > config.ranks.world
              ? ", " + std::to_string(config.training.microbatches) + " microbatches"
              : "") +
         ", batch " + std::to_string(config.training.batch) + " x " +
         std::to_string(config.training.seq) + " tokens, " + counted(config.training.steps, "step");
}

int64_t trained_numel(const ShardLayout& layout) {
  int64_t numel = 0;
  for (const auto& parameter : layout.parameters)
    numel += parameter.trainable ? parameter.numel : 0;
  return numel;
}

std::string size_of_model(const ShardLayout& layout) {
  const int64_t all = layout.numel(), trained = trained_numel(layout);
  if (trained == all) return with_commas(all) + " parameters";
  return with_commas(trained) + " of " + with_commas(all) + " parameters are trained";
}

std::optional<std::string> loss_beside_entropy(const Dataset& dataset,
                                               const std::vector<double>& losses) {
  const auto* text = dynamic_cast<const TextDataset*>(&dataset);
  if (text == nullptr || losses.empty()) return std::nullopt;
  const size_t count = std::min<size_t>(losses.size(), kReportedLosses);
  const auto first = losses.end() - static_cast<std::ptrdiff_t>(count);
  const double mean = std::accumulate(first, losses.end(), 0.0) / static_cast<double>(count);
  char line[160];
  std::snprintf(
      line, sizeof line,
      "mean loss of the last %zu steps %.4f, unigram entropy of the text %.4f (nats per byte)",
      count, mean, text->unigram_entropy());
  return line;
}

Json final_line(const TrainConfig& config, Strategy& strategy, Communicator& comm,
                double sum_before, const std::vector<Call>& last_step,
                const std::optional<ModelTraces>& traces, const Transports& transports) {
  const ShardLayout& layout = strategy.layout();
  const Schedule step =
      schedule(config, layout, comm.rank(),
               /*first=*/config.end_step() - config.checkpoint.first_step <= 1, traces);
  // On CUDA, live_bytes counts only memory of the GPU. NCCL is the only transport that has its
  // buffers there, so the prediction counts only the buffers of NCCL.
  const Transports counted = config.on_cuda() ? Transports("nccl") : transports;
  int64_t mismatches = 0;
  const bool onednn = !config.on_cuda() && config.precision.policy.rounds_parameters();
  const Json live = live_bytes_json(step, counted, onednn, mismatches);
  const auto peaks = gather_from_ranks(comm, live_bytes::peak_total());
  const auto all_mismatches = gather_from_ranks(comm, mismatches);
  const auto allocator = gpu::allocator_stats().value_or(gpu::AllocatorStats());
  const auto allocated = gather_from_ranks(comm, allocator.peak_allocated);
  const auto reserved = gather_from_ranks(comm, allocator.peak_reserved);
  ParameterSummary after;
  strategy.full_parameters([&](const auto&, const at::Tensor& p) { after.add(p); });

  Json line{
      {"final", true},
      {"param_sum", after.sum_fp32()},
      {"param_sum_change", after.sum_fp64() - sum_before},
      {"param_sha256", after.sha256()},
      {"state_sha256", state_hash(config, strategy, comm)},
      {"peak_bytes", peaks},
      {"live_bytes", live},
      {"live_bytes_mismatches",
       std::accumulate(all_mismatches.begin(), all_mismatches.end(), int64_t{0})},
      {"comm_bytes", bytes_by_key(last_step)},
      {"comm_bytes_predicted", predict_comm_bytes(step)},
      {"units", units_json(layout)},
      {"params", layout.numel()},
      {"world", config.ranks.world},
      {"shard_size", layout.world_size},
      {"strategy",
       config.ranks.mode == Mode::fsdp ? Json(config.sharding_strategy()) : Json(nullptr)},
      {"checkpoint_every", config.memory.activation_checkpoint_every},
      {"param_dtype", dtype_name(config.precision.policy.param_dtype)},
      {"reduce_dtype", dtype_name(config.precision.policy.reduce_dtype)},
      {"keep_fp32", config.precision.keep_fp32},
      {"threads", config.ranks.threads},
      {"backend", comm.backend()},
      {"batch", config.training.batch},
      {"parts", config.batch_partition().microbatches()},
      {"seq", config.training.seq},
      {"steps", config.training.steps},
      {"first_step", config.checkpoint.first_step},
      {"mode", to_string(config.ranks.mode)},
      {"model", config.model.name},
      {"commit", config.reports.commit.empty() ? Json(nullptr) : Json(config.reports.commit)}};
  const Json times = step_seconds(config, layout);
  if (!times.is_null()) line["step_seconds"] = times;
  if (config.on_cuda()) {
    line["caching_allocator"] = {{"peak_allocated", allocated}, {"peak_reserved", reserved}};
  }
  return line;
}

std::vector<std::string> summary_of(const Json& line) {
  std::vector<std::string> summary;
  if (line.contains("step_seconds")) {
    const auto milliseconds = [&](const char* key) {
      return line["step_seconds"][key].get<double>() * 1e3;
    };
    summary.push_back(formatted(
        "step time over the link: %.1f ms measured, %.1f ms predicted; without prefetch %.1f ms "
        "predicted",
        milliseconds("measured"), milliseconds("predicted"),
        milliseconds("predicted_without_prefetch")));
  }
  summary.push_back(formatted("param sum %.6f (change %+.6f), sha256 %s",
                              line["param_sum"].get<double>(),
                              line["param_sum_change"].get<double>(),
                              line["param_sha256"].get<std::string>().substr(0, 16).c_str()));
  if (line.contains("counted")) summary.push_back(counted_text(line));
  std::string bytes = "bytes per rank: peak " + with_commas(line["peak_bytes"][0]);
  for (const auto& [key, value] : line["comm_bytes"].items())
    bytes += ", " + key + " " + with_commas(value);
  summary.push_back(bytes + " (last step)");
  summary.push_back(predictions_of(line));
  if (line.contains("caching_allocator")) {
    const Json& peaks = line["caching_allocator"];
    summary.push_back("caching allocator: peak " + with_commas(peaks["peak_allocated"][0]) +
                      " allocated, " + with_commas(peaks["peak_reserved"][0]) + " reserved");
  }
  return summary;
}

}  // namespace fsdp
