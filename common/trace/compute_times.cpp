#include <trace/compute_times.h>

#include <algorithm>
#include <limits>

namespace fsdp {
namespace {

bool is_compute(const Event& event) {
  return event.kind == EventKind::forward || event.kind == EventKind::backward;
}

// The spans of modules and waits in [step.begin, step.end], the outer before the inner.
std::vector<Event> spans_of(const std::vector<Event>& events, const Event& step) {
  std::vector<Event> spans;
  for (const Event& event : events) {
    const bool counts = is_compute(event) || event.kind == EventKind::wait;
    if (counts && event.ended() && event.within(step)) spans.push_back(event);
  }
  std::stable_sort(spans.begin(), spans.end(), [](const Event& a, const Event& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  return spans;
}

}  // namespace

std::vector<ComputeTime> compute_times(const std::vector<Event>& events, uint64_t step) {
  const auto found = std::find_if(events.begin(), events.end(), [&](const Event& event) {
    return event.kind == EventKind::step && event.call.sequence == step && event.ended();
  });
  if (found == events.end()) return {};

  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  struct Open {
    Event event;
    size_t time;  // in `times`; kNone for a wait
  };
  std::vector<Open> around;  // the spans around the one looked at, from the outermost in
  std::vector<ComputeTime> times;
  for (const Event& span : spans_of(events, *found)) {
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

}  // namespace fsdp
