#include <planning/plan.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace fsdp {
namespace {

// Returns whether a call of rank 0 connects ranks of several hosts. Ranks fill one host after
// another.
bool leaves_host(const Schedule::Issue& call, const Machine& machine) {
  return (call.ranks - 1) * call.stride >= machine.ranks_per_host;
}

ModelTrace timed(ModelTrace trace, double flops_per_second) {
  for (auto* events : {&trace.forward, &trace.backward})
    for (auto& event : *events)
      event.time = static_cast<int64_t>(static_cast<double>(event.flops) / flops_per_second * 1e9);
  return trace;
}

// Adds up the cost of each phase. `spans`: of the actions of `step`; empty: the times are unknown.
std::array<PhaseCost, kPhases> costs_of_phases(const Schedule& step,
                                               const std::vector<Span>& spans) {
  std::array<PhaseCost, kPhases> phases{};
  PhaseCost* cost = &phases[static_cast<size_t>(Phase::init)];
  for (size_t i = 0; i < step.actions.size(); ++i) {
    const auto& action = step.actions[i];
    const int64_t duration = spans.empty() ? 0 : spans[i].end - spans[i].begin;
    if (const auto* entered = std::get_if<Schedule::Enter>(&action))
      cost = &phases[static_cast<size_t>(entered->phase)];
    if (const auto* part = std::get_if<Schedule::Compute>(&action)) {
      cost->flops += part->flops;
      cost->computing += duration;
    }
    if (std::holds_alternative<Schedule::Wait>(action)) cost->waiting += duration;
    const auto* call = std::get_if<Schedule::Issue>(&action);
    if (call == nullptr || call->ranks == 1 || !call->label.empty()) continue;
    ++cost->calls;
    cost->received += call->bytes_received();
    cost->links += duration;
  }
  return phases;
}

struct Way {
  std::string name;
  int shard_size;  // 0: all ranks
  bool reshards;
};

std::vector<Way> strategies(int world, int ranks_per_host) {
  std::vector<Way> all{{"full", 0, true}, {"grad_op", 0, false}};
  if (world > 1) all.push_back({"no", 1, true});
  if (ranks_per_host > 1 && ranks_per_host < world && world % ranks_per_host == 0)
    all.push_back({"hybrid --shard-size " + std::to_string(ranks_per_host), ranks_per_host, true});
  return all;
}

std::string recomputed(int every) {
  return every == 0 ? "none" : every == 1 ? "all" : "every:" + std::to_string(every);
}

}  // namespace

Plan make_plan(const TrainConfig& config, const ShardLayout& layout, const ModelTraces& given,
               const Machine& machine) {
  ModelTraces traces = given;
  if (machine.flops > 0) {
    traces.begins = timed(given.begins, machine.flops);
    traces.adds = timed(given.adds, machine.flops);
  }
  const Schedule step = schedule(config, layout, /*rank=*/0, /*first=*/false, traces);
  Plan plan{predict_memory(step, machine.backend)};
  plan.unit = plan.peak.unit ? layout.units[*plan.peak.unit].name : "root";
  bool crosses = false, stays = false;
  for (const auto& action : step.actions) {
    if (const auto* part = std::get_if<Schedule::Compute>(&action)) plan.flops += part->flops;
    const auto* call = std::get_if<Schedule::Issue>(&action);
    if (call == nullptr || call->ranks == 1) continue;
    const bool leaves = leaves_host(*call, machine);
    (leaves ? plan.between : plan.within) += call->bytes_received();
    (leaves ? crosses : stays) = true;
  }
  const bool links = (machine.within || !stays) && (machine.between || !crosses);
  std::vector<Span> spans;
  if (machine.flops > 0 && links) {
    const CallTime call_time = [&](const Schedule::Issue& call) {
      if (call.ranks == 1) return int64_t{0};
      return over(leaves_host(call, machine) ? *machine.between : *machine.within)(call);
    };
    plan.time = predict_step_time(step, call_time);
    spans = predict_spans(step, call_time);
  }
  plan.phases = costs_of_phases(step, spans);
  return plan;
}

std::vector<Candidate> search(const TrainConfig& base, const Machine& machine, int64_t memory,
                              const LayoutOf& layout, const TracesOf& traces) {
  std::map<int, ModelTraces> traced;  // by activation_checkpoint_every
  std::vector<Candidate> candidates;
  for (const auto& strategy : strategies(base.ranks.world, machine.ranks_per_host)) {
    TrainConfig of_strategy = base;
    of_strategy.sharding.shard_size = strategy.shard_size;
    of_strategy.sharding.reshard_after_forward = strategy.reshards;
    const ShardLayout units = layout(of_strategy);
    for (const int every : {0, 2, 1}) {
      for (const int limit : {1, 2, 4}) {
        Candidate candidate{.options = "--strategy " + strategy.name +
                                       " --checkpoint-activations " + recomputed(every) +
                                       " --limit " + std::to_string(limit),
                            .config = of_strategy,
                            .plan = {}};
        TrainConfig& config = candidate.config;
        config.memory.activation_checkpoint_every = every;
        config.sharding.limit = limit;
        if (!traced.contains(every)) traced[every] = traces(config, units);
        candidate.plan = make_plan(config, units, traced[every], machine);
        candidates.push_back(std::move(candidate));
      }
    }
  }
  const auto key = [&](const Candidate& candidate) {
    const Plan& plan = candidate.plan;
    const int64_t peak = plan.peak.bytes.total;
    const bool fits = peak <= memory;
    return std::tuple(!fits, fits && plan.time ? plan.time->total() : 0, peak);
  };
  std::ranges::stable_sort(candidates, {}, key);
  return candidates;
}

}  // namespace fsdp
