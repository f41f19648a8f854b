#include <base/median.h>
#include <prediction/link_report.h>
#include <prediction/schedule.h>
#include <prediction/step_time.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace fsdp {
namespace {

bool is_compute(const Event& event) {
  return event.kind == EventKind::forward || event.kind == EventKind::backward;
}

// Returns those of `events` within `step` that are calls of modules or waits, in the order of their
// start, and each before the events inside it.
std::vector<Event> spans_of(const std::vector<Event>& events, const Event& step) {
  std::vector<Event> spans;
  for (const Event& event : events) {
    const bool counts = is_compute(event) || event.kind == EventKind::wait;
    if (counts && event.ended() && event.within(step)) spans.push_back(event);
  }
  std::ranges::stable_sort(spans, {}, [](const Event& e) { return std::pair(e.begin, -e.end); });
  return spans;
}

// Returns how long each unit of `layout` computed for one microbatch of a step, on average; nothing
// if the computing of a unit was not recorded.
std::optional<std::vector<UnitTime>> unit_times(const ShardLayout& layout,
                                                const std::vector<ComputeTime>& computing,
                                                int accumulation_steps) {
  std::vector<UnitTime> units;
  for (const auto& unit : layout.units) {
    UnitTime time;
    bool recorded = false;
    for (const ComputeTime& part : computing) {
      if (part.unit != unit.name) continue;
      recorded = true;
      auto& sum = part.kind == EventKind::forward ? time.forward : time.backward;
      sum += static_cast<int64_t>(part.seconds * 1e9 / accumulation_steps);
    }
    if (!recorded) return std::nullopt;
    units.push_back(time);
  }
  return units;
}

// Returns how much of a step [ns] is outside the model's forward and backward. For a wait that is
// outside them, counts the time that the link needs for the call, not the time that the rank
// waited.
int64_t rest_of_step(const Link& link, int world_size, const std::vector<Event>& events,
                     const Event& step) {
  std::vector<Event> model;
  int64_t rest = step.duration();
  for (const Event& event : events) {
    if (!is_compute(event) || event.name() != "root" || !event.within(step)) continue;
    model.push_back(event);
    rest -= event.duration();
  }
  for (const Event& event : events) {
    if (event.kind != EventKind::wait || !event.within(step)) continue;
    const bool inside =
        std::ranges::any_of(model, [&](const Event& span) { return event.within(span); });
    if (!inside)
      rest += link.time(event.call.operation, event.call.bytes, world_size) - event.duration();
  }
  return rest;
}

}  // namespace

std::vector<ComputeTime> compute_times(const std::vector<Event>& events, const Event& step) {
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  struct Open {
    Event event;
    size_t time;  // index in `times` of the ComputeTime of `event`; kNone if `event` is a wait
  };
  std::vector<Open> around;  // the spans that contain `span`, the outermost first
  std::vector<ComputeTime> times;
  for (const Event& span : spans_of(events, step)) {
    while (!around.empty() && !span.within(around.back().event))
      around.pop_back();
    const double seconds = static_cast<double>(span.duration()) * 1e-9;
    if (!around.empty() && around.back().time != kNone) {
      times[around.back().time].seconds -= seconds;
    }
    around.push_back({span, is_compute(span) ? times.size() : kNone});
    if (is_compute(span)) times.push_back({span.kind, span.name(), seconds});
  }
  return times;
}

std::optional<StepTimes> step_times(const TrainConfig& config, const ShardLayout& layout,
                                    const std::vector<Event>& events) {
  if (!config.ranks.comm.link || config.ranks.mode != Mode::fsdp) return std::nullopt;
  const Link& link = *config.ranks.comm.link;
  const int accumulation_steps = config.batch_partition().accumulation_steps;
  std::vector<double> measured, predicted, without_prefetch;
  for (const Event& step : events) {
    if (step.kind != EventKind::step || step.call.sequence == 0 || !step.ended()) continue;
    const auto units = unit_times(layout, compute_times(events, step), accumulation_steps);
    if (!units) return std::nullopt;
    const int64_t rest = rest_of_step(link, layout.world_size, events, step);
    const ModelTraces traces = chain_of(config, layout, *units);
    const auto predict = [&](bool prefetch) {
      TrainConfig other = config;
      other.sharding.prefetch = prefetch;
      const Schedule scheduled = schedule(other, layout, 0, /*first=*/false, traces);
      const int64_t model = predict_step_time(scheduled, of_units(over(link))).total();
      return static_cast<double>(model + rest) * 1e-9;
    };
    measured.push_back(static_cast<double>(step.duration()) * 1e-9);
    predicted.push_back(predict(config.sharding.prefetch));
    without_prefetch.push_back(predict(false));
  }
  if (measured.empty()) return std::nullopt;
  return StepTimes{median(measured), median(predicted), median(without_prefetch)};
}

}  // namespace fsdp
