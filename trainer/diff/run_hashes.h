#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// The kinds of tensors that a step makes, in the order of the step. The kinds from `gathered` to
// `part` belong to one microbatch, the others to the whole step.
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
                                          {TensorKind::part, "gradient of the microbatch"},
                                          {TensorKind::reduced, "reduced gradient"},
                                          {TensorKind::norm, "norm of the gradients"},
                                          {TensorKind::clipped, "clipped gradient"},
                                          {TensorKind::updated, "parameter after the update"},
                                          {TensorKind::m, "first moment"},
                                          {TensorKind::v, "second moment"}})

// Identifies an event of a run: a tensor that a step makes. The key does not depend on how the
// ranks divide the work.
struct EventKey {
  int64_t step{};  // number of the step, counted from 0
  int part{-1};    // index of the microbatch; -1: the tensor belongs to the whole step
  TensorKind what{};
  // Name of the parameter or module; empty: the tensor belongs to the whole model.
  std::string name;
  auto operator<=>(const EventKey&) const = default;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EventKey, step, part, what, name)

struct EventHash {
  // Position of the event among the events of its microbatch; for an event of the whole step, index
  // of the parameter in the model.
  int64_t place{};
  std::string unit;  // name of the unit that has the parameter or module
  uint64_t hash{};   // sum of the hashes of the ranks that hold parts of the tensor
  int64_t numel{};   // number of elements that were hashed
  // The lines about this event in the ranks' files that have the tensor's values too (--capture).
  std::vector<nlohmann::json> values{};
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EventHash, place, unit, hash, numel)

struct RunHashes {
  nlohmann::json settings;
  std::map<EventKey, EventHash> events;
};

struct StepRange {
  int64_t first, end;  // the steps from `first` to `end` - 1, counted from 0
};

// Reads a folder of --hashes with a file for each rank, or a single file with the lines of all
// ranks. With `steps`, reads only the events of these steps. Ignores a last line without a newline,
// because a killed rank can leave half a line. Throws std::runtime_error, which names the file, if
// a file is missing or has other lines.
RunHashes read_hashes(const std::string& path, const std::optional<StepRange>& steps = {});

struct Comparison {
  int64_t equal{};  // number of events whose hash and number of elements are equal in both runs
  // The first event that differs between the runs, or that one run lacks, in the order in which
  // steps make events; empty: no event differs.
  std::optional<EventKey> first;
  // The first event that a run which ended early lacks; empty: there is none.
  std::optional<EventKey> end;
  // Texts for the user: the kinds of events that only one of the runs has.
  std::vector<std::string> left_out;
};

// Throws std::invalid_argument if the settings `a` and `b` of two runs differ, because then the
// bits of the runs can't be equal. The message names the first setting that differs and the option
// that makes it equal.
void require_equal_settings(const nlohmann::json& a, const nlohmann::json& b);

// Compares the events of two runs. An event that one run lacks counts as a difference, unless the
// run that lacks it has no event of this kind or, with `cut_off`, has ended early. Throws what
// require_equal_settings() throws.
Comparison compare(const RunHashes& a, const RunHashes& b, bool cut_off);

// Returns the place of an event as text: "step 1, microbatch 2, unit layers.2, gradient of the
// microbatch: layers.2.ffn.w1.weight". `unit`: the unit that has the event's parameter or module.
std::string place_of(const EventKey& key, const std::string& unit);
// Returns the same for an event of at least one of the two runs.
std::string place_of(const EventKey& key, const RunHashes& a, const RunHashes& b);

// The first element of an event whose values differ between run a and run b.
struct DifferingElement {
  std::string index;  // index of the element in the whole tensor: "[3, 2]"
  double a{}, b{};    // value of the element in each run
  // Values of the element in earlier events of the same step that are equal in both runs and that
  // --capture has written: of the gradients of the microbatches, and of the other events.
  std::vector<double> of_microbatches{}, others{};
  int rank{};  // the rank of run b that recorded the element
  // Index of the element among the elements that this rank recorded of the event; and the index of
  // the nearest of them that is equal in both runs, -1 if there is none.
  int64_t element{}, right{-1};
};
// Returns the first element in which the two runs differ in the event `key`. Returns nothing if no
// number differs, or if --capture has not written the values of both runs.
std::optional<DifferingElement> first_differing_element(const EventKey& key, const RunHashes& a,
                                                        const RunHashes& b);

// Returns lines of text about the event `key`, whose values --capture has written: the first
// elements that differ, the number of elements that differ and, for the first of these elements,
// the rank of each run that holds it and the collectives after which the rank recorded it. If the
// values of a run are not known, returns one line that reports this.
std::vector<std::string> differing_values(const EventKey& key, const RunHashes& a,
                                          const RunHashes& b);

}  // namespace fsdp
