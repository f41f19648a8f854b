#include <planning/plan.h>

namespace fsdp {
namespace {

// Ranks fill one host after another.
bool leaves_host(const Schedule::Issue& call, const Machine& machine) {
  return (call.ranks - 1) * call.stride >= machine.ranks_per_host;
}

ModelTrace timed(ModelTrace trace, double flops_per_second) {
  for (auto* events : {&trace.forward, &trace.backward})
    for (auto& event : *events)
      event.time = static_cast<int64_t>(static_cast<double>(event.flops) / flops_per_second * 1e9);
  return trace;
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
  if (machine.flops > 0 && links) {
    plan.time = predict_step_time(step, [&](const Schedule::Issue& call) {
      if (call.ranks == 1) return int64_t{0};
      return over(leaves_host(call, machine) ? *machine.between : *machine.within)(call);
    });
  }
  return plan;
}

}  // namespace fsdp
