#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// What a step makes, in this order. Those from `gathered` to `part` are of a part.
enum class TensorKind {
  initial,
  gathered,
  output,
  loss,
  part,
  reduced,
  norm,
  clipped,
  updated,
  m,
  v
};
NLOHMANN_JSON_SERIALIZE_ENUM(TensorKind, {{TensorKind::initial, "parameter before the first step"},
                                          {TensorKind::gathered, "gathered parameter in forward"},
                                          {TensorKind::output, "output of forward"},
                                          {TensorKind::loss, "loss"},
                                          {TensorKind::part, "gradient of the part"},
                                          {TensorKind::reduced, "reduced gradient"},
                                          {TensorKind::norm, "norm of the gradients"},
                                          {TensorKind::clipped, "clipped gradient"},
                                          {TensorKind::updated, "parameter after the update"},
                                          {TensorKind::m, "first moment"},
                                          {TensorKind::v, "second moment"}})

// A tensor of a step, under a name that does not depend on how ranks share out the work.
struct EventKey {
  int64_t step{};  // from 0 on
  int part{-1};    // -1: of the whole step
  TensorKind what{};
  std::string name;  // of the parameter or module; empty: of the whole model
  auto operator<=>(const EventKey&) const = default;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EventKey, step, part, what, name)

struct EventHash {
  int64_t place{};                       // among those of one part and kind, or of one kind
  std::string unit;                      // of the parameter or module
  uint64_t hash{};                       // the sum over the ranks that share it out
  int64_t numel{};                       // [elements] in it
  std::vector<nlohmann::json> values{};  // that HashRecorder has added, if they were asked for
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EventHash, place, unit, hash, numel)

struct RunHashes {
  nlohmann::json settings;
  std::map<EventKey, EventHash> events;
};

// Reads a folder of --hashes with the files of all ranks, or one file with the lines of all. A last
// line without an end is left out: that rank was killed. Throws std::runtime_error naming the file.
RunHashes read_hashes(const std::string& path);

struct Comparison {
  int64_t equal{};                    // events
  std::optional<EventKey> first;      // in the order of a step, of those that differ
  std::optional<EventKey> end;        // the first that a run which has ended early lacks
  std::vector<std::string> left_out;  // kinds of events that only one of the runs has
};

// Throws std::invalid_argument if the settings of two runs differ, so that their bits can't be
// equal: names the first one, and the option that makes it equal.
void require_equal_settings(const nlohmann::json& a, const nlohmann::json& b);

// An event that one of the runs lacks differs, unless that run has none of its kind or, with
// `cut_off`, has ended early. Throws what require_equal_settings() throws.
Comparison compare(const RunHashes& a, const RunHashes& b, bool cut_off);

// "step 1, part 2, unit layers.2, gradient of the part: layers.2.ffn.w1.weight"
std::string place_of(const EventKey& key, const RunHashes& a, const RunHashes& b);

// As lines: the first elements that differ, how many those are, and which ranks and calls made the
// first one. Says so if the values of a run are not known.
std::vector<std::string> differing_values(const EventKey& key, const RunHashes& a,
                                          const RunHashes& b);

}  // namespace fsdp
