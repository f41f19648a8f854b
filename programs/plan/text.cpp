#include <base/text.h>
#include <plan/machines.h>
#include <plan/memory_bar.h>
#include <plan/text.h>
#include <plan/train_command.h>

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

// Returns the number as text: "6.738 billion", "36.1 million" or, below a million, all digits.
std::string count_text(int64_t count) {
  const auto number = static_cast<double>(count);
  if (count >= 1'000'000'000) return formatted("%.4g billion", number * 1e-9);
  if (count >= 1'000'000) return formatted("%.4g million", number * 1e-6);
  return std::to_string(count);
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

// Returns a table with the number of collectives and the milliseconds of each phase of a step; ""
// if the plan has no time, because it does not know the machine's speeds.
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

std::string time_text(const Plan& plan, const TrainConfig& config, const Machine& machine) {
  const std::string work =
      formatted("computes %.4g flops in a step", static_cast<double>(plan.flops));
  if (!plan.time) {
    const bool linked = machine.within && (machine.between || plan.host.between == 0);
    const char* missing = machine.flops == 0 ? "--machine, or --flops, --intra and --inter"
                          : linked           ? "--flops"
                          : machine.within   ? "--inter"
                                             : "--intra and --inter";
    return work + "; for its time give " + missing + "\n";
  }
  const double computing = static_cast<double>(plan.time->computing) * 1e-9;
  const double waiting = static_cast<double>(plan.time->waiting) * 1e-9;
  const double seconds = computing + waiting;
  const std::string step = formatted(
      "a step takes %.4g s: computing %.4g, waiting for links %.4g (%.0f %% of --flops); bound by "
      "%s\n",
      seconds, computing, waiting, 100 * computing / seconds,
      waiting > computing ? "the links" : "computing");
  return work + '\n' + wrap(step, 100, 2) +
         (config.memory.offload_dir.empty()
              ? ""
              : "not predicted: the time of the files of --offload\n");
}

std::string fit_text(const Plan& plan, const PlanSettings& settings) {
  if (!settings.memory) return "";
  const int64_t free = *settings.memory - plan.peak.bytes.total;
  if (free >= 0)
    return "it fits into " + bytes_text(*settings.memory) + ": " + bytes_text(free) + " are free\n";
  return "it does not fit into " + bytes_text(*settings.memory) + ": " + bytes_text(-free) +
         " are missing; --search finds settings that fit\n";
}

// Returns lines with the bytes that a rank receives in a step, and the bytes that the ranks of a
// host receive from each other and from other hosts; "" if no rank receives any.
std::string traffic_text(const Plan& plan, const TrainConfig& config, const Machine& machine) {
  if (plan.within + plan.between == 0) return "";
  const int ranks = std::min(config.ranks.world, machine.ranks_per_host);
  return formatted("received in a step: %s by a rank\n",
                   bytes_text(plan.within + plan.between).c_str()) +
         formatted("  by a host of %s: %s from its own ranks, %s from other hosts\n",
                   counted(ranks, "rank").c_str(), bytes_text(plan.host.within).c_str(),
                   bytes_text(plan.host.between).c_str());
}

}  // namespace

const char* const kNotCounted =
    "not counted: the CUDA context, buffers of NCCL, what allocators keep, and scratch of GPU "
    "kernels\n";

std::string first_lines(const Plan& plan, const TrainConfig& config, const PlanSettings& settings) {
  const BatchPartition partition = config.batch_partition();
  const bool replicas = config.ranks.mode == Mode::fsdp && partition.replicas > 1;
  const int microbatches = partition.microbatches();
  std::string text = to_string(config.ranks.mode) + std::string(" of ") + config.model.name + " (" +
                     count_text(plan.parameters) + " parameters) on " +
                     counted(config.ranks.world, "rank") +
                     (replicas ? " in " + counted(partition.replicas, "replica") : "") + ", ";
  if (settings.memory) text += bytes_text(*settings.memory) + " each, ";
  text += settings.search ? "rows of " + std::to_string(config.training.seq) + " tokens\n"
                          : std::to_string(microbatches) +
                                (microbatches == 1 ? " microbatch of " : " microbatches of ") +
                                std::to_string(config.training.batch / microbatches) + " x " +
                                std::to_string(config.training.seq) + " tokens\n";
  text = wrap(text, 100, 2);
  if (settings.rows_fill_context)
    text += "a row has the model's context, " + std::to_string(config.training.seq) +
            " tokens; --seq gives another number\n";
  if (!settings.machine_name.empty())
    text += wrap(settings.machine_name + ": " + speeds_text(settings.machine) + " (docs/plan.md)\n",
                 100, 2);
  return text;
}

std::string text_of(const Plan& plan, const TrainConfig& config, const PlanSettings& settings) {
  const char* phase =
      plan.peak.phase == Phase::init ? "before the step" : to_string(plan.peak.phase);
  return first_lines(plan, config, settings) + memory_table(plan) +
         formatted("the peak: %s, in %s of %s\n", bytes_text(plan.peak.bytes.total).c_str(), phase,
                   plan.unit.c_str()) +
         fit_text(plan, settings) + memory_bar(plan.peak.bytes, settings.memory) +
         traffic_text(plan, config, settings.machine) + phase_table(plan) +
         time_text(plan, config, settings.machine) + kNotCounted + "to run it:\n" +
         train_command(settings, config) + notes_on_command(settings, config);
}

Json json_of(const Plan& plan, const TrainConfig& config) {
  Json line{{"model", config.model.name},
            {"parameters", plan.parameters},
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
  line["host_received"] = {{"from_own_ranks", plan.host.within},
                           {"from_other_hosts", plan.host.between}};
  line["batch"] = config.training.batch;
  line["microbatches"] = config.training.microbatches;
  line["seq"] = config.training.seq;
  line["flops"] = plan.flops;
  if (plan.time)
    line["seconds"] = {{"computing", static_cast<double>(plan.time->computing) * 1e-9},
                       {"waiting", static_cast<double>(plan.time->waiting) * 1e-9}};
  return line;
}

}  // namespace fsdp
