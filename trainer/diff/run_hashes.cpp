#include <diff/run_hashes.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace fsdp {
namespace {

using nlohmann::json;

// Returns whether `line` of a file of --hashes is an event of a step outside of `steps`. Finds the
// step without parsing the whole line.
bool is_outside(const std::string& line, const StepRange& steps) {
  const std::string name = "\"step\":";
  const size_t at = line.find(name);
  if (at == std::string::npos) return false;
  const int64_t step = std::strtoll(line.c_str() + at + name.size(), nullptr, 10);
  return step < steps.first || step >= steps.end;
}

// Adds the events in the file `path` to `run`. Returns the number of processes that the run had,
// which is in the first line of the file.
int read_file(const std::string& path, const std::optional<StepRange>& steps, RunHashes& run) {
  std::ifstream file(path, std::ios::binary);
  int processes = 0;
  std::string text;
  for (int64_t number = 1; std::getline(file, text) && !file.eof(); ++number) {
    if (number > 1 && steps && is_outside(text, *steps)) continue;
    try {
      const json line = json::parse(text);
      if (number == 1 || line.contains("processes")) {
        line.at("processes").get_to(processes);
        run.settings = line.at("settings");
        continue;
      }
      const auto piece = line.get<EventHash>();
      EventHash& event = run.events[line.get<EventKey>()];
      event = {piece.place, piece.unit, event.hash + piece.hash, event.numel + piece.numel,
               std::move(event.values)};
      if (line.contains("values")) event.values.push_back(line);
    } catch (const json::exception&) {
      throw std::runtime_error(path + ": line " + std::to_string(number) +
                               " is not a line of --hashes");
    }
  }
  if (processes < 1) throw std::runtime_error(path + ": is missing, or is not a file of --hashes");
  return processes;
}

// For a message: returns the option to give both runs, so that `setting`, which is `a` in one run
// and `b` in the other, becomes equal.
std::string remedy(const std::string& setting, const json& a, const json& b) {
  if (setting == "parts" && a.is_number() && b.is_number())
    return "--microbatches " + std::to_string(std::lcm(a.get<int64_t>(), b.get<int64_t>()));
  if (setting == "recipe") return "the same --data";
  if (setting == "text_sha256") return "the same --text";
  if (setting == "betas" || setting == "eps") return "the same --optimizer";
  if (setting == "scales_loss") return "the same --loss-scale";
  if (setting == "first_step") return "the same --resume";
  std::string option = setting;
  std::ranges::replace(option, '_', '-');
  return "the same --" + option;
}

// Returns a key that sorts events in the order in which steps make them.
auto order_of(const EventKey& key, const EventHash& event) {
  return std::tuple(key.step, key.part < 0 ? key.what : TensorKind::gathered, key.part, event.place,
                    key);
}

// Returns the hash of the event `key` in `run`. If the run does not have this event, returns an
// EventHash with -1 elements.
const EventHash& event_of(const RunHashes& run, const EventKey& key) {
  static const EventHash none{0, "", 0, -1};
  const auto found = run.events.find(key);
  return found == run.events.end() ? none : found->second;
}

// Returns, for each element of the event's tensor in order, the element's value and the JSON line
// that has the value. The rank that holds the element wrote this line to its file.
std::vector<std::pair<double, const json*>> elements_of(const EventHash& event) {
  std::map<int64_t, const json*> lines;
  for (const json& line : event.values)
    lines[line.at("begin").get<int64_t>()] = &line;
  std::vector<std::pair<double, const json*>> elements;
  for (const auto& [begin, line] : lines)
    for (const json& value : line->at("values"))
      elements.emplace_back(value.is_number() ? value.get<double>() : NAN, line);
  return elements;
}

// Returns the rank that has written `line`, and the collectives that the line names, as text: "rank
// 1, after #12 reduce_scatter h.1 (5120 x float, 0.0 MB)".
std::string origin(const json& line) {
  return "rank " + line.at("rank").dump() + line.at("calls").get<std::string>();
}

// Returns the index of an element as text: "[3, 0]" for element 12 of [5, 4].
bool equal_numbers(double x, double y) {
  return x == y || (std::isnan(x) && std::isnan(y));
}

std::string index_text(size_t element, const std::vector<size_t>& sizes) {
  std::string text = "]";
  for (size_t i = sizes.size(); i-- > 1; element /= std::max<size_t>(sizes[i], 1))
    text = ", " + std::to_string(element % std::max<size_t>(sizes[i], 1)) + text;
  return '[' + std::to_string(element) + text;
}

}  // namespace

void require_equal_settings(const json& a, const json& b) {
  const json changes = json::diff(a, b);
  if (changes.empty()) return;
  const std::string path = changes[0].at("path");
  const std::string setting = path.substr(1, path.find('/', 1) - 1);
  const json of_a = a.value(setting, json()), of_b = b.value(setting, json());
  throw std::invalid_argument("a has " + setting + ' ' + of_a.dump() + ", and b " + of_b.dump() +
                              ": they must be equal; give both " + remedy(setting, of_a, of_b));
}

RunHashes read_hashes(const std::string& path, const std::optional<StepRange>& steps) {
  RunHashes run;
  if (!std::filesystem::is_directory(path)) {
    read_file(path, steps, run);
    return run;
  }
  // If the file with the hashes of a rank is missing, read_file() throws.
  for (int rank = 0, ranks = 1; rank < ranks; ++rank)
    ranks = read_file(path + "/rank." + std::to_string(rank), steps, run);
  return run;
}

Comparison compare(const RunHashes& a, const RunHashes& b, bool cut_off) {
  require_equal_settings(a.settings, b.settings);
  Comparison result;
  // Kind of event -> names ("a", "b") of the runs that have an event of this kind.
  std::map<TensorKind, std::set<std::string>> kinds;
  std::set<decltype(order_of({}, {}))> ordered;
  for (const auto& [name, run, other] : {std::tuple("a", &a, &b), std::tuple("b", &b, &a)}) {
    for (const auto& [key, event] : run->events) {
      kinds[key.what].insert(name);
      if (run == &a || !other->events.contains(key)) ordered.insert(order_of(key, event));
    }
  }
  for (const auto& [what, runs] : kinds)
    if (runs.size() == 1 && !cut_off)
      result.left_out.push_back(json(what).get<std::string>() + ", which only " + *runs.begin() +
                                " has");
  for (const auto& order : ordered) {
    const auto& key = std::get<EventKey>(order);
    const EventHash &of_a = event_of(a, key), &of_b = event_of(b, key);
    const bool equal = of_a.hash == of_b.hash && of_a.numel == of_b.numel;
    const int64_t least = std::min(of_a.numel, of_b.numel);
    if (cut_off && least != 0 && of_a.numel != of_b.numel) {
      // Some ranks of one run ended before they wrote this event.
      if (!result.end) result.end = key;
    } else if (least >= 0 || kinds[key.what].size() == 2) {
      result.equal += equal;
      // `result.end` is the first event that not all ranks of the run that ended early have
      // written. If `result.end` belongs to the whole step, such as the norm of the gradients, all
      // later events are computed from it. So if a later event differs, `result.end` is reported as
      // the first event that differs.
      const bool lacked = result.end && result.end->part < 0;
      if (!equal && !result.first) result.first = lacked ? result.end : key;
    }
  }
  return result;
}

std::string place_of(const EventKey& key, const std::string& unit) {
  std::string text = "step " + std::to_string(key.step + 1);
  if (key.part >= 0) text += ", microbatch " + std::to_string(key.part);
  if (!key.name.empty()) text += ", unit " + unit;
  text += ", " + json(key.what).get<std::string>();
  if (!key.name.empty()) text += ": " + key.name;
  return text;
}

std::string place_of(const EventKey& key, const RunHashes& a, const RunHashes& b) {
  return place_of(key, (a.events.contains(key) ? a : b).events.at(key).unit);
}

std::optional<DifferingElement> first_differing_element(const EventKey& key, const RunHashes& a,
                                                        const RunHashes& b) {
  const EventHash &of_a = event_of(a, key), &of_b = event_of(b, key);
  if (of_a.values.empty() || of_b.values.empty()) return {};
  const auto of_run_a = elements_of(of_a), of_run_b = elements_of(of_b);
  const size_t count = std::min(of_run_a.size(), of_run_b.size());
  const auto differs = [&](size_t i) {
    return !equal_numbers(of_run_a[i].first, of_run_b[i].first);
  };
  size_t first = 0;
  while (first < count && !differs(first))
    ++first;
  if (first == count) return {};
  const json& line = *of_run_b[first].second;
  const auto begin = line.at("begin").get<int64_t>();
  DifferingElement found;
  found.index = index_text(first, of_b.values.front().at("sizes"));
  found.a = of_run_a[first].first;
  found.b = of_run_b[first].first;
  found.rank = line.at("rank");
  found.element = static_cast<int64_t>(first) - begin;
  for (const auto& [earlier, event] : a.events) {
    const auto values =
        earlier == key ? std::vector<std::pair<double, const json*>>() : elements_of(event);
    const bool equal = event_of(b, earlier).hash == event.hash;
    if (!equal || first >= values.size() || std::isnan(values[first].first)) continue;
    (earlier.part >= 0 ? found.of_microbatches : found.others).push_back(values[first].first);
  }
  // `distance`: looks at the elements of this rank, the nearest ones first.
  for (size_t distance = 1; distance < count && found.right < 0; ++distance)
    for (const size_t i : {first - distance, first + distance})
      if (i < count && of_run_b[i].second == &line && !differs(i))
        found.right = static_cast<int64_t>(i) - begin;
  return found;
}

std::vector<std::string> differing_values(const EventKey& key, const RunHashes& a,
                                          const RunHashes& b) {
  const EventHash &of_a = event_of(a, key), &of_b = event_of(b, key);
  for (const auto& [name, event] : {std::pair("a", &of_a), std::pair("b", &of_b)}) {
    if (event->numel < 0) return {std::string(name) + " does not have it"};
    if (event->numel == 0)
      return {std::string(name) + " has no storage there: it is not unsharded"};
    if (event->values.empty()) return {std::string("the values of ") + name + " are not known"};
  }
  const auto of_run_a = elements_of(of_a), of_run_b = elements_of(of_b);
  const auto sizes = of_a.values.front().at("sizes").get<std::vector<size_t>>();
  std::vector<std::string> lines;
  std::vector<size_t> differ;
  for (size_t i = 0; i < std::min(of_run_a.size(), of_run_b.size()); ++i) {
    const double x = of_run_a[i].first, y = of_run_b[i].first;
    if (equal_numbers(x, y)) continue;
    differ.push_back(i);
    if (differ.size() > 5) continue;
    char line[96];
    std::snprintf(line, sizeof line, "%-20s a %-17.9g b %.9g", index_text(i, sizes).c_str(), x, y);
    lines.emplace_back(line);
  }
  if (differ.empty()) return {"no number differs: only signs of zeros or bits of NaNs do"};
  lines.push_back(std::to_string(differ.size()) + " of " + std::to_string(of_a.numel) +
                  " elements differ, the last one is " + index_text(differ.back(), sizes));
  lines.push_back("a: " + origin(*of_run_a[differ[0]].second));
  lines.push_back("b: " + origin(*of_run_b[differ[0]].second));
  return lines;
}

}  // namespace fsdp
