#include <diff/run_hashes.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <tuple>

namespace fsdp {
namespace {

using nlohmann::json;

// Returns how many processes the run had.
int read_file(const std::string& path, RunHashes& run) {
  std::ifstream file(path, std::ios::binary);
  int processes = 0;
  std::string text;
  for (int64_t number = 1; std::getline(file, text) && !file.eof(); ++number) {
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
                               " is none that --hashes writes");
    }
  }
  if (processes < 1) throw std::runtime_error(path + ": no file that --hashes writes");
  return processes;
}

void require_equal(const json& a, const json& b) {
  for (const auto* settings : {&a, &b}) {
    for (const auto& [key, value] : settings->items()) {
      const json of_a = a.value(key, json()), of_b = b.value(key, json());
      if (of_a == of_b) continue;
      throw std::invalid_argument("a has " + key + ' ' + of_a.dump() + ", and b " + of_b.dump() +
                                  ": they have to be equal");
    }
  }
}

// Compares as a step goes on.
auto order_of(const EventKey& key, const EventHash& event) {
  return std::tuple(key.step, key.part < 0 ? key.what : What::gathered, key.part, event.place, key);
}

// With -1 elements if the run has none.
const EventHash& event_of(const RunHashes& run, const EventKey& key) {
  static const EventHash none{0, "", 0, -1};
  const auto found = run.events.find(key);
  return found == run.events.end() ? none : found->second;
}

// All elements, and the line that has the first one of each rank.
struct Values {
  std::vector<double> numbers;
  std::map<size_t, const json*> lines;

  explicit Values(const EventHash& event) {
    for (const json& line : event.values) {
      const auto begin = line.at("begin").get<size_t>();
      const json& values = line.at("values");
      if (begin > (size_t{1} << 33)) continue;  // a file that somebody has changed
      numbers.resize(std::max(numbers.size(), begin + values.size()), NAN);
      std::transform(values.begin(), values.end(), &numbers[begin], [](const json& value) {
        return value.is_number() ? value.get<double>() : NAN;
      });
      lines[begin] = &line;
    }
  }

  // "rank 1, after #12 reduce_scatter h.1 (5120 x float, 0.0 MB)"
  std::string origin(size_t element) const {
    const auto after = lines.upper_bound(element);
    const json& line = *(after == lines.begin() ? after : std::prev(after))->second;
    return "rank " + line.at("rank").dump() + line.at("calls").get<std::string>();
  }
};

// "[3, 0]" of element 12 of [5, 4].
std::string index_text(size_t element, const std::vector<size_t>& sizes) {
  std::string text = "]";
  for (size_t i = sizes.size(); i-- > 1; element /= std::max<size_t>(sizes[i], 1))
    text = ", " + std::to_string(element % std::max<size_t>(sizes[i], 1)) + text;
  return '[' + std::to_string(element) + text;
}

}  // namespace

RunHashes read_hashes(const std::string& path) {
  RunHashes run;
  if (!std::filesystem::is_directory(path)) {
    read_file(path, run);
    return run;
  }
  for (int rank = 0, ranks = 1; rank < ranks; ++rank)  // one that is missing has no lines
    ranks = read_file(path + "/rank." + std::to_string(rank), run);
  return run;
}

Comparison compare(const RunHashes& a, const RunHashes& b, bool cut_off) {
  require_equal(a.settings, b.settings);
  Comparison result;
  std::map<What, std::set<std::string>> kinds;  // which runs have them
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
      if (!result.end) result.end = key;  // not all of its ranks have come so far
    } else if (least >= 0 || kinds[key.what].size() == 2) {
      result.equal += equal;
      // What follows on an event of all ranks is made of it.
      const bool lacked = result.end && result.end->part < 0;
      if (!equal && !result.first) result.first = lacked ? result.end : key;
    }
  }
  return result;
}

std::string place_of(const EventKey& key, const RunHashes& a, const RunHashes& b) {
  std::string text = "step " + std::to_string(key.step + 1);
  if (key.part >= 0) text += ", part " + std::to_string(key.part);
  if (!key.name.empty()) text += ", unit " + (a.events.contains(key) ? a : b).events.at(key).unit;
  text += ", " + json(key.what).get<std::string>();
  if (!key.name.empty()) text += ": " + key.name;
  return text;
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
  const Values left(of_a), right(of_b);
  const auto sizes = of_a.values.front().at("sizes").get<std::vector<size_t>>();
  std::vector<std::string> lines;
  size_t differ = 0, first = 0, last = 0;
  for (size_t i = 0; i < std::min(left.numbers.size(), right.numbers.size()); ++i) {
    const double x = left.numbers[i], y = right.numbers[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    last = i;
    if (differ == 0) first = i;
    if (++differ > 5) continue;
    char line[96];
    std::snprintf(line, sizeof line, "%-20s a %-17.9g b %.9g", index_text(i, sizes).c_str(), x, y);
    lines.emplace_back(line);
  }
  lines.push_back(std::to_string(differ) + " of " + std::to_string(of_a.numel) +
                  " elements differ, the last one is " + index_text(last, sizes));
  lines.push_back("a: " + left.origin(first));
  lines.push_back("b: " + right.origin(first));
  return lines;
}

}  // namespace fsdp
