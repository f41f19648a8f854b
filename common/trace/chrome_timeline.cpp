#include <trace/timeline.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

double microseconds(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-3;
}

std::string title(const Event& event) {
  if (event.kind == EventKind::step) return "step " + std::to_string(event.call.sequence);
  if (event.kind == EventKind::optimizer) return "optimizer";
  return event.text() + ' ' + event.name();
}

Json arguments(const Event& event) {
  Json arguments{{"unit", event.name()}};
  if (event.of_collective()) arguments["sequence"] = event.call.sequence;
  if (event.of_collective() || event.kind == EventKind::free) {
    arguments["bytes"] = event.call.bytes;
  }
  return arguments;
}

// Returns the JSON event that gives a name to the process of rank `rank` or to one of its threads.
Json named(const char* what, size_t rank, size_t thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

// Returns the JSON event for `event`. A span that did not end gets only its beginning.
Json span_or_instant(const Event& event, size_t rank, size_t thread, int64_t origin) {
  const bool instant = event.ended() && event.begin == event.end;
  Json line{{"ph", !event.ended() ? "B"
                   : instant      ? "i"
                                  : "X"},
            {"name", title(event)},
            {"cat", to_string(event.kind)},
            {"pid", rank},
            {"tid", thread},
            {"ts", microseconds(event.begin - origin)}};
  if (instant) line["s"] = "t";
  if (event.ended() && !instant) line["dur"] = microseconds(event.duration());
  line["args"] = arguments(event);
  return line;
}

void add_counters(Json& lines, const std::vector<Event>& events, size_t rank, int64_t origin) {
  for (const Event& event : timeline_detail::samples(events)) {
    Json classes;
    for (size_t cls = 0; cls < kMemoryClasses; ++cls) {
      classes[to_string(static_cast<MemoryClass>(cls))] = event.live.by_class[cls];
    }
    const double time = microseconds(event.end - origin);
    lines.push_back(
        {{"ph", "C"}, {"name", "live bytes"}, {"pid", rank}, {"ts", time}, {"args", classes}});
    lines.push_back({{"ph", "C"},
                     {"name", "highest total since the last event"},
                     {"pid", rank},
                     {"ts", time},
                     {"args", {{"bytes", event.peak}}}});
  }
}

}  // namespace

std::string chrome_timeline(const Timeline& timeline) {
  const int64_t origin = timeline_detail::origin(timeline);
  Json lines = Json::array();
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const auto& events = timeline.ranks[rank];
    const auto lanes = timeline_detail::flight_lanes(events);
    lines.push_back(named("process_name", rank, 0, "rank " + std::to_string(rank)));
    lines.push_back(named("thread_name", rank, 0, "compute"));
    const size_t last = lanes.empty() ? 0 : *std::max_element(lanes.begin(), lanes.end());
    for (size_t lane = 0; lane <= last; ++lane) {
      const std::string number = lane == 0 ? "" : ' ' + std::to_string(lane + 1);
      lines.push_back(named("thread_name", rank, lane + 1, "communication" + number));
    }
    for (size_t i = 0; i < events.size(); ++i) {
      const size_t thread = events[i].kind == EventKind::flight ? lanes[i] + 1 : 0;
      lines.push_back(span_or_instant(events[i], rank, thread, origin));
    }
    add_counters(lines, events, rank, origin);
  }
  const Json whole{{"displayTimeUnit", "ms"},
                   {"otherData", {{"title", timeline.title}, {"failure", timeline.failure}}},
                   {"traceEvents", lines}};
  return whole.dump() + '\n';
}

}  // namespace fsdp
