#include <base/text.h>
#include <strategies/workload.h>
#include <train/description.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace fsdp {
namespace {

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

}  // namespace

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

std::optional<std::string> loss_beside_entropy(const Dataset& dataset,
                                               const std::vector<double>& losses) {
  const auto* text = dynamic_cast<const TextDataset*>(&dataset);
  if (text == nullptr || losses.empty()) return std::nullopt;
  const size_t count = std::min<size_t>(losses.size(), kToldLosses);
  const auto first = losses.end() - static_cast<std::ptrdiff_t>(count);
  const double mean = std::accumulate(first, losses.end(), 0.0) / static_cast<double>(count);
  char line[160];
  std::snprintf(
      line, sizeof line,
      "mean loss of the last %zu steps %.4f, unigram entropy of the text %.4f (nats per byte)",
      count, mean, text->unigram_entropy());
  return line;
}

}  // namespace fsdp
