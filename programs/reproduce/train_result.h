#pragma once

#include <nlohmann/json.hpp>

#include <set>
#include <string>
#include <vector>

namespace fsdp {

// A JSON object that remembers which of its fields tables have read.
struct Fields : nlohmann::json {
  using nlohmann::json::json;
  Fields(nlohmann::json object = object_t()) : nlohmann::json(std::move(object)) {}

  const nlohmann::json& at(const std::string& key) const {  // NOLINT: hides json's on purpose
    read.insert(key);
    return nlohmann::json::at(key);
  }
  nlohmann::ordered_json kept() const;  // the fields that were read

  mutable std::set<std::string> read;
};

// What a run of train wrote with --json and --log.
struct TrainResult {
  std::vector<Fields> steps;
  Fields last;       // the line with "final": true
  double seconds{};  // that the run took

  double loss(size_t step) const { return steps.at(step).at("loss"); }
  std::string hash() const { return last.at("param_sha256"); }
  // The median over all steps but the first.
  double tokens_per_s() const;
  // A field of `seconds` of the quickest step, the first one left out: whatever else runs on the
  // machine only makes a step longer.
  double seconds_of(const std::string& what) const;
};

// Reads the lines of --json. Throws std::runtime_error unless `text` is lines of JSON of which only
// the last one is final.
TrainResult parse_train_result(const std::string& text);

}  // namespace fsdp
