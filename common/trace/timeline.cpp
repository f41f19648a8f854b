#include <trace/timeline.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace fsdp {

Timeline timeline_of(const EventLog& log, std::string title, std::string failure) {
  Timeline timeline{std::move(title), std::move(failure), {}};
  for (int rank = 0; rank < log.world_size(); ++rank)
    timeline.ranks.push_back(log.events(rank));
  return timeline;
}

TimelineWriter timeline_writer(const std::string& path) {
  if (path.ends_with(".txt")) return text_timeline;
  if (path.ends_with(".json")) return chrome_timeline;
  if (path.ends_with(".html")) return html_timeline;
  throw std::invalid_argument(path + ": the name of a timeline ends in .txt, .json or .html");
}

namespace timeline_detail {

int64_t origin(const Timeline& timeline) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const auto& events : timeline.ranks) {
    for (const Event& event : events)
      first = std::min(first, event.begin);
  }
  return first == std::numeric_limits<int64_t>::max() ? 0 : first;
}

std::vector<Event> samples(const std::vector<Event>& events) {
  std::vector<Event> taken;
  for (const Event& event : events)
    if (event.ended() && event.kind != EventKind::flight) taken.push_back(event);
  std::ranges::stable_sort(taken, {}, &Event::end);
  return taken;
}

std::vector<size_t> flight_lanes(const std::vector<Event>& events) {
  std::vector<size_t> order(events.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return events[i].begin; });
  std::vector<size_t> lanes(events.size());
  // [ns] For each lane (a row of the timeline whose flights do not overlap): when its last flight
  // ends.
  std::vector<int64_t> busy_until;
  for (const size_t i : order) {
    const Event& event = events[i];
    if (event.kind != EventKind::flight) continue;
    const auto idle =
        std::ranges::find_if(busy_until, [&](int64_t until) { return until <= event.begin; });
    lanes[i] = static_cast<size_t>(idle - busy_until.begin());
    if (idle == busy_until.end()) busy_until.push_back(0);
    busy_until[lanes[i]] = event.ended() ? event.end : std::numeric_limits<int64_t>::max();
  }
  return lanes;
}

}  // namespace timeline_detail
}  // namespace fsdp
