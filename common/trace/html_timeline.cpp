#include <trace/timeline.h>

#include <map>
#include <nlohmann/json.hpp>

namespace fsdp {

// The HTML text of common/trace/page/timeline.html, which CMake compiles into the program.
extern const char* const kTimelinePage;

namespace {

using Json = nlohmann::ordered_json;

// The list of the names of modules and units in the page. Each name is in the list once, and events
// refer to a name by its index.
class Names {
 public:
  size_t index(const std::string& name) {
    const auto [place, added] = places_.try_emplace(name, places_.size());
    if (added) names_.push_back(name);
    return place->second;
  }
  const Json& json() const { return names_; }

 private:
  std::map<std::string, size_t> places_;
  Json names_ = Json::array();
};

// Returns a list with an entry [kind, operation, name, begin, length, sequence, bytes, lane] for
// each event. A length of -1 means that the event did not end.
Json events_json(const std::vector<Event>& events, int64_t origin, Names& names) {
  const auto lanes = timeline_detail::flight_lanes(events);
  Json lines = Json::array();
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    lines.push_back({event.kind, event.call.operation, names.index(event.name()),
                     event.begin - origin, event.ended() ? event.duration() : -1,
                     event.call.sequence, event.call.bytes, lanes[i]});
  }
  return lines;
}

// Returns a list with an entry [time, highest total since the previous sample, bytes of each
// class...] for each sample of live bytes.
Json live_json(const std::vector<Event>& events, int64_t origin) {
  Json lines = Json::array();
  for (const Event& event : timeline_detail::samples(events)) {
    Json line{event.end - origin, event.peak};
    for (const int64_t bytes : event.live.by_class)
      line.push_back(bytes);
    lines.push_back(std::move(line));
  }
  return lines;
}

template <class Enum>
Json names_of(size_t count) {
  Json names = Json::array();
  for (size_t i = 0; i < count; ++i)
    names.push_back(to_string(static_cast<Enum>(i)));
  return names;
}

// Returns `json` as text for a script element of a page. It escapes "<", so no name can end the
// element.
std::string in_script(const Json& json) {
  std::string text;
  for (const char c : json.dump()) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string html_timeline(const Timeline& timeline) {
  const int64_t origin = timeline_detail::origin(timeline);
  Names names;
  Json ranks = Json::array();
  for (const auto& events : timeline.ranks) {
    ranks.push_back(
        {{"events", events_json(events, origin, names)}, {"live", live_json(events, origin)}});
  }
  const Json data{{"title", timeline.title},
                  {"failure", timeline.failure},
                  {"kinds", names_of<EventKind>(kEventKinds)},
                  {"operations", names_of<Operation>(kOperations)},
                  {"classes", names_of<MemoryClass>(kMemoryClasses)},
                  {"names", names.json()},
                  {"ranks", ranks}};
  std::string page = kTimelinePage;
  constexpr std::string_view kPlace = "{\"the data\": 0}";
  page.replace(page.find(kPlace), kPlace.size(), in_script(data));
  return page;
}

}  // namespace fsdp
