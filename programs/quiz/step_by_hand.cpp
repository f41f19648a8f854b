#include <nn/models.h>
#include <plan/stack.h>
#include <quiz/step_by_hand.h>

namespace fsdp {
namespace {

double milliseconds_of(const Link& link, double hops, double bytes) {
  return hops * static_cast<double>(link.latency.count()) * 1e-6 +
         bytes / link.bytes_per_second * 1e3;
}

// [ms] Returns the time of an all-gather or a reduce-scatter of a unit of `elements` in bf16.
double collective(const Link& link, double ranks, int64_t elements) {
  return milliseconds_of(link, ranks - 1, (ranks - 1) / ranks * 2 * static_cast<double>(elements));
}

// Sets PhaseByHand::of, the computing times of a block and of the head, in forward and in backward.
void add_computing(const PlanSettings& settings, StepByHand& step) {
  const TrainConfig& config = settings.configs.front();
  const auto shape = std::get<GPT2Options>(model_shape(config.model.name));
  const auto d = static_cast<double>(shape.d_model), seq = static_cast<double>(config.training.seq);
  const double tokens = static_cast<double>(config.training.batch) / config.ranks.world * seq;
  // [ms] The time in which a rank computes one floating-point operation for each of its tokens.
  const double each = tokens / settings.machine.flops * 1e3;
  const double head = static_cast<double>(shape.vocabulary) * d;
  ComputingByHand& forward = step.forward.of;
  forward = {each * (2 * 12 * d * d + 4 * seq * d), each * 2 * head};
  // In backward, a checkpointed block first computes its forward again.
  step.backward.of = {each * (4 * 12 * d * d + 10 * seq * d) + forward.block, each * 4 * head};
}

}  // namespace

ModelUnits units_of(const PlanSettings& settings) {
  const ShardLayout layout = layout_of(settings.configs.front());
  ModelUnits units;
  for (const auto& parameter : layout.parameters) {
    if (layout.units[parameter.unit].root) {
      units.root += parameter.numel;
    } else if (parameter.unit + 1 == layout.units.size()) {
      units.block += parameter.numel;
    }
  }
  units.blocks = static_cast<int64_t>(layout.units.size()) - 1;
  return units;
}

StepByHand step_by_hand(const PlanSettings& settings, const std::string& strategy) {
  const Machine& machine = settings.machine;
  const Link &within = *machine.within, &between = *machine.between;
  const double world = settings.configs.front().ranks.world, of_host = machine.ranks_per_host;
  const bool hybrid = strategy == "hybrid", keeps_gathered = strategy == "grad_op";
  const ModelUnits units = units_of(settings);
  const auto blocks = static_cast<double>(units.blocks);
  // of_block and of_root: the time of one collective of a block, and of one of the root.
  const Link& link = hybrid ? within : between;
  const double ranks = hybrid ? of_host : world;
  const double of_block = collective(link, ranks, units.block);
  const double of_root = collective(link, ranks, units.root);

  StepByHand step;
  add_computing(settings, step);
  auto& [forward, backward] = step;
  for (PhaseByHand* phase : {&forward, &backward})
    phase->computing = blocks * phase->of.block + phase->of.head;
  forward.links = blocks * of_block + of_root;
  backward.links = (keeps_gathered ? 1 : 2) * blocks * of_block + of_root;
  const double in_links = of_block + of_root;
  forward.ends = forward.links_are_longer() ? forward.of.block + forward.of.head : in_links;
  const double before_a_reduction = backward.of.head + (keeps_gathered ? backward.of.block : 0);
  const double gather_of_last_block = keeps_gathered ? 0 : of_block;
  backward.ends =
      backward.links_are_longer() ? before_a_reduction : gather_of_last_block + in_links;
  if (hybrid) {
    const double hosts = world / of_host;
    backward.sums =
        milliseconds_of(between, (blocks + 1) * 2 * (hosts - 1),
                        2 * (hosts - 1) / hosts * 4 * static_cast<double>(units.all()) / of_host);
  }
  backward.loss = milliseconds_of(between, 2 * (world - 1), 0);
  return step;
}

}  // namespace fsdp
