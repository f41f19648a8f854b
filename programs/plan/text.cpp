#include <base/text.h>
#include <plan/text.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kTrained{Phase::forward, Phase::backward, Phase::optimizer};

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char text[200];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

const char* name_of(MemoryClass cls) {
  return cls == MemoryClass::other ? "activations" : to_string(cls);
}

std::string memory_table(const Plan& plan) {
  const bool giga = plan.peak.bytes.total >= 1'000'000'000;
  const double unit = giga ? 1e9 : 1e6;
  const auto cell = [&](std::optional<int64_t> bytes) {
    return bytes ? formatted("%12.3f", static_cast<double>(*bytes) / unit)
                 : std::string(11, ' ') + "-";
  };
  std::string text = formatted("%-22s%12s%12s%12s%14s\n", giga ? "GB of rank 0" : "MB of rank 0",
                               "forward", "backward", "optimizer", "at the peak");
  const auto line = [&](const char* name, const auto& of_phase, int64_t at_peak) {
    text += formatted("  %-20s", name);
    for (const Phase phase : kTrained)
      text += cell(of_phase(phase));
    text += "  " + cell(at_peak) + "\n";
  };
  for (size_t cls = 0; cls < kMemoryClasses; ++cls) {
    const auto memory = static_cast<MemoryClass>(cls);
    line(
        name_of(memory), [&](Phase phase) { return plan.bytes[static_cast<size_t>(phase)][cls]; },
        plan.peak.bytes[memory]);
  }
  line(
      "all", [&](Phase phase) { return plan.totals[static_cast<size_t>(phase)]; },
      plan.peak.bytes.total);
  return text;
}

// Returns the collectives and times of the phases; nothing if the plan has no time.
std::string phase_table(const Plan& plan) {
  if (!plan.time) return "";
  std::string text =
      formatted("%-22s%12s%12s%12s\n", "phases of rank 0", "forward", "backward", "optimizer");
  const auto line = [&](const char* name, const char* format, const auto& value) {
    text += formatted("  %-20s", name);
    for (const Phase phase : kTrained)
      text += formatted(format, value(plan.phases[static_cast<size_t>(phase)]));
    text += '\n';
  };
  const auto milliseconds = [](int64_t nanoseconds) {
    return static_cast<double>(nanoseconds) * 1e-6;
  };
  line("collectives", "%12.0f",
       [](const PhaseCost& cost) { return static_cast<double>(cost.calls); });
  line("ms of links for them", "%12.3f",
       [&](const PhaseCost& cost) { return milliseconds(cost.links); });
  line("ms of computing", "%12.3f",
       [&](const PhaseCost& cost) { return milliseconds(cost.computing); });
  line("ms of waiting", "%12.3f",
       [&](const PhaseCost& cost) { return milliseconds(cost.waiting); });
  return text;
}

std::string time_text(const Plan& plan, const Machine& machine) {
  const std::string work =
      formatted("computes %.4g flops in a step", static_cast<double>(plan.flops));
  if (!plan.time) {
    const char* missing =
        machine.flops > 0 ? "--intra and --inter" : "--flops, --intra and --inter";
    return work + "; for its time give " + missing + "\n";
  }
  const double computing = static_cast<double>(plan.time->computing) * 1e-9;
  const double waiting = static_cast<double>(plan.time->waiting) * 1e-9;
  return work + formatted(
                    "\na step takes %.4g s: computing %.4g, waiting for links %.4g (%.0f %% of "
                    "--flops); bound by %s\n",
                    computing + waiting, computing, waiting,
                    100 * computing / (computing + waiting),
                    waiting > computing ? "the links" : "computing");
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  const bool giga = bytes >= 1'000'000'000;
  return formatted("%.3f %s", static_cast<double>(bytes) / (giga ? 1e9 : 1e6), giga ? "GB" : "MB");
}

std::string text_of(const Plan& plan, const TrainConfig& config, const Machine& machine) {
  const char* phase =
      plan.peak.phase == Phase::init ? "before the step" : to_string(plan.peak.phase);
  const BatchPartition partition = config.batch_partition();
  const bool replicas = config.ranks.mode == Mode::fsdp && partition.replicas > 1;
  const int microbatches = partition.microbatches();
  return to_string(config.ranks.mode) + std::string(" of ") + config.model.name + " on " +
         counted(config.ranks.world, "rank") +
         (replicas ? " in " + counted(partition.replicas, "replica") : "") + ", " +
         std::to_string(microbatches) +
         (microbatches == 1 ? " microbatch of " : " microbatches of ") +
         std::to_string(config.training.batch / microbatches) + " x " +
         std::to_string(config.training.seq) + " tokens\n" + memory_table(plan) +
         formatted("the peak: %s, in %s of %s\n", bytes_text(plan.peak.bytes.total).c_str(), phase,
                   plan.unit.c_str()) +
         formatted("received in a step: %s within a host, %s between hosts of %d ranks\n",
                   bytes_text(plan.within).c_str(), bytes_text(plan.between).c_str(),
                   machine.ranks_per_host) +
         phase_table(plan) + time_text(plan, machine) +
         "not counted: the CUDA context, buffers of NCCL, what allocators keep, and scratch of GPU "
         "kernels\n";
}

Json json_of(const Plan& plan, const TrainConfig& config) {
  Json line{{"model", config.model.name},
            {"world", config.ranks.world},
            {"shard_size", config.shards()},
            {"mode", to_string(config.ranks.mode)},
            {"peak_bytes", plan.peak.bytes.total},
            {"peak_phase", to_string(plan.peak.phase)},
            {"peak_unit", plan.unit}};
  for (size_t cls = 0; cls < kMemoryClasses; ++cls)
    line["at_peak"][to_string(static_cast<MemoryClass>(cls))] = plan.peak.bytes.by_class[cls];
  for (const Phase phase : kTrained) {
    const auto& bytes = plan.bytes[static_cast<size_t>(phase)];
    for (size_t cls = 0; cls < kMemoryClasses; ++cls)
      if (bytes[cls])
        line["live_bytes"][to_string(phase)][to_string(static_cast<MemoryClass>(cls))] =
            *bytes[cls];
    const auto& total = plan.totals[static_cast<size_t>(phase)];
    if (total) line["live_bytes"][to_string(phase)]["total"] = *total;
  }
  for (const Phase phase : kTrained) {
    const PhaseCost& cost = plan.phases[static_cast<size_t>(phase)];
    auto& of_phase = line["phases"][to_string(phase)];
    of_phase = {{"flops", cost.flops}, {"calls", cost.calls}, {"received", cost.received}};
    if (!plan.time) continue;
    of_phase["seconds"] = {{"computing", static_cast<double>(cost.computing) * 1e-9},
                           {"links", static_cast<double>(cost.links) * 1e-9},
                           {"waiting", static_cast<double>(cost.waiting) * 1e-9}};
  }
  line["bytes_within_host"] = plan.within;
  line["bytes_between_hosts"] = plan.between;
  line["flops"] = plan.flops;
  if (plan.time)
    line["seconds"] = {{"computing", static_cast<double>(plan.time->computing) * 1e-9},
                       {"waiting", static_cast<double>(plan.time->waiting) * 1e-9}};
  return line;
}

std::string chart_of(const std::vector<Plan>& plans, const std::vector<TrainConfig>& configs) {
  constexpr double kHeight = 260, kLeft = 90, kTop = 20, kStep = 64;
  constexpr std::array<const char*, kMemoryClasses> kColours{
      "#5f6e80", "#2e7fc2", "#d9822b", "#e8b36a", "#7b5ea7", "#8a8f98", "#3f9c6b"};
  int64_t most = 1;
  for (const Plan& plan : plans)
    most = std::max(most, plan.peak.bytes.total);
  const auto height = [&](int64_t bytes) {
    return kHeight * static_cast<double>(bytes) / static_cast<double>(most);
  };
  const double width = kLeft + kStep * static_cast<double>(plans.size()) + 150;
  std::string svg = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n", width,
      kTop + kHeight + 50);
  svg +=
      "<style>text{font:12px sans-serif;fill:#222}line{stroke:#888}"
      "@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>\n";
  for (const double part : {0.0, 0.5, 1.0}) {
    const double y = kTop + kHeight * (1 - part);
    svg += formatted("<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" opacity=\".4\"/>",
                     kLeft, width - 150, y, y);
    svg += formatted("<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", kLeft - 6,
                     y + 4, bytes_text(std::llround(part * static_cast<double>(most))).c_str());
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    const double x = kLeft + kStep * static_cast<double>(i) + 10;
    double y = kTop + kHeight;
    for (size_t cls = 0; cls < kMemoryClasses; ++cls) {
      const int64_t bytes = plans[i].peak.bytes.by_class[cls];
      y -= height(bytes);
      svg += formatted("<rect x=\"%.0f\" y=\"%.2f\" width=\"44\" height=\"%.2f\" fill=\"%s\"/>", x,
                       y, height(bytes), kColours[cls]);
    }
    svg += formatted("<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">%d</text>\n", x + 22,
                     kTop + kHeight + 18, configs[i].ranks.world);
  }
  for (size_t cls = 0; cls < kMemoryClasses; ++cls) {
    const double y = kTop + 20 * static_cast<double>(kMemoryClasses - 1 - cls);
    svg += formatted("<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>",
                     width - 140, y, kColours[cls]);
    svg += formatted("<text x=\"%.0f\" y=\"%.0f\">%s</text>\n", width - 122, y + 11,
                     name_of(static_cast<MemoryClass>(cls)));
  }
  return svg +
         formatted(
             "<text x=\"%.0f\" y=\"%.0f\">ranks; bytes of rank 0 at the peak</text>\n</svg>\n",
             kLeft, kTop + kHeight + 40);
}

}  // namespace fsdp
