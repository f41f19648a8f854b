#include <planning/plan.h>

#include <algorithm>

namespace fsdp {
namespace {

// Returns whether the ranks that make the call `call` of rank 0 are on more than one host.
bool leaves_host(const Schedule::Issue& call, const Machine& machine) {
  return (call.ranks - 1) * call.stride >= machine.ranks_per_host;
}

ModelTrace timed(ModelTrace trace, double flops_per_second) {
  for (auto* events : {&trace.forward, &trace.backward})
    for (auto& event : *events)
      event.time = static_cast<int64_t>(static_cast<double>(event.flops) / flops_per_second * 1e9);
  return trace;
}

// Adds up the cost of each phase of `step`. `spans`: the start and end of each action of `step`;
// empty: the times are unknown.
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

// Returns the number of bytes that the ranks of the first host receive in `call`, from each other
// and from other hosts: each rank receives from the rank before it in a ring (see Traffic).
Traffic traffic_of_host(const Schedule::Issue& call, const TrainConfig& config,
                        const Machine& machine) {
  Traffic traffic;
  const int ranks = std::min(config.ranks.world, machine.ranks_per_host);
  const int block = call.ranks * call.stride;
  for (int rank = 0; rank < ranks; ++rank) {
    const int first = rank - rank % block;
    const int before = first + (rank - first - call.stride + block) % block;
    (before < ranks ? traffic.within : traffic.between) += call.bytes_received();
  }
  return traffic;
}

// Returns the link over which the bytes of `call` move: a link within a host, or one between hosts.
// If a ring through all ranks of a host leaves the host, it has the bandwidth of links_of_ring
// links between hosts, but at most that of a link within the host. Requires: the machine has the
// link.
Link link_of(const Schedule::Issue& call, const Machine& machine) {
  if (!leaves_host(call, machine)) return *machine.within;
  Link link = *machine.between;
  if (call.stride > 1 || machine.links_of_ring == 1) return link;
  link.bytes_per_second *= machine.links_of_ring;
  if (machine.within)
    link.bytes_per_second = std::min(link.bytes_per_second, machine.within->bytes_per_second);
  return link;
}

}  // namespace

double Machine::flops_of(const TrainConfig& config) const {
  const bool narrow = config.precision.policy.param_bytes() == 2;
  return narrow && flops_in_16_bits > 0 ? flops_in_16_bits : flops;
}

Plan make_plan(const TrainConfig& config, const ShardLayout& layout, const ModelTraces& given,
               const Machine& machine) {
  ModelTraces traces = given;
  const double flops = machine.flops_of(config);
  if (flops > 0) {
    traces.begins = timed(given.begins, flops);
    traces.adds = timed(given.adds, flops);
  }
  const Schedule step = schedule(config, layout, /*rank=*/0, /*first=*/false, traces);
  Plan plan{predict_memory(step, machine.backend)};
  plan.parameters = layout.numel();
  plan.unit = plan.peak.unit ? layout.units[*plan.peak.unit].name : "root";
  bool crosses = false, stays = false;
  for (const auto& action : step.actions) {
    if (const auto* part = std::get_if<Schedule::Compute>(&action)) plan.flops += part->flops;
    const auto* call = std::get_if<Schedule::Issue>(&action);
    if (call == nullptr || call->ranks == 1) continue;
    const bool leaves = leaves_host(*call, machine);
    (leaves ? plan.between : plan.within) += call->bytes_received();
    (leaves ? crosses : stays) = true;
    const Traffic of_call = traffic_of_host(*call, config, machine);
    plan.host.within += of_call.within;
    plan.host.between += of_call.between;
  }
  const bool links = (machine.within || !stays) && (machine.between || !crosses);
  std::vector<Span> spans;
  if (flops > 0 && links) {
    const CallTime call_time = [&](const Schedule::Issue& call) {
      if (call.ranks == 1) return int64_t{0};
      return over(link_of(call, machine))(call);
    };
    plan.time = predict_step_time(step, call_time);
    spans = predict_spans(step, call_time);
  }
  plan.phases = costs_of_phases(step, spans);
  return plan;
}

}  // namespace fsdp
