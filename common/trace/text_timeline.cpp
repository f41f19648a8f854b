#include <base/text.h>
#include <trace/timeline.h>

#include <algorithm>
#include <cstdio>

namespace fsdp {
namespace {

constexpr size_t kColumns = 100;

struct Line {
  size_t rank;
  const Event* event;
};

double ms(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-6;
}

std::string count(bool known, int64_t bytes) {
  return known ? std::to_string(bytes) : "";
}

// Returns the sequence number of an event as text: "#3" for a collective, "3" for a step, "" for
// all other events.
std::string sequence(const Event& event) {
  std::string number = std::to_string(event.call.sequence);
  if (event.kind == EventKind::step) return number;
  return event.of_collective() ? "#" + number : "";
}

std::string length(const Event& event) {
  if (!event.ended()) return "no end";
  const bool instant = event.kind == EventKind::issue || event.kind == EventKind::free;
  if (instant) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", ms(event.duration()));
  return text;
}

std::string text(const Line& line, int64_t origin) {
  const Event& event = *line.event;
  const bool sampled = event.ended() && event.kind != EventKind::flight;
  const bool moves = event.call.bytes > 0 || event.of_collective();
  std::string name = event.name();
  if (name.size() > 14) name = ".." + name.substr(name.size() - 12);
  char text[160];
  std::snprintf(text, sizeof text, "%2zu %10.3f %9s %-21s %6s %-14s %10s %10s %10s", line.rank,
                ms(event.begin - origin), length(event).c_str(), event.text().c_str(),
                sequence(event).c_str(), name.c_str(), count(moves, event.call.bytes).c_str(),
                count(sampled, event.live.total).c_str(),
                count(sampled, event.live[MemoryClass::gathered]).c_str());
  std::string result = text;
  result.erase(result.find_last_not_of(' ') + 1);
  return result + '\n';
}

}  // namespace

std::string text_timeline(const Timeline& timeline) {
  std::vector<Line> lines;
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    for (const Event& event : timeline.ranks[rank])
      lines.push_back({rank, &event});
  }
  std::ranges::stable_sort(lines, {}, [](const Line& line) { return line.event->begin; });

  std::string result;
  for (const std::string& text : {timeline.title, timeline.failure})
    if (!text.empty()) result += wrap(text, kColumns) + '\n';
  char heading[160];
  std::snprintf(heading, sizeof heading, "%2s %10s %9s %-21s %6s %-14s %10s %10s %10s\n", "r",
                "begin ms", "length ms", "event", "", "unit", "bytes", "live", "gathered");
  result += heading;
  const int64_t origin = timeline_detail::origin(timeline);
  for (const Line& line : lines)
    result += text(line, origin);
  return result;
}

}  // namespace fsdp
