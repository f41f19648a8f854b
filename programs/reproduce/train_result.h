#pragma once

#include <nlohmann/json.hpp>

#include <set>
#include <string>
#include <vector>

namespace fsdp {

// A JSON object that remembers the keys of the fields that a caller has read with at().
struct Fields : nlohmann::json {
  using nlohmann::json::json;
  Fields(nlohmann::json object = object_t()) : nlohmann::json(std::move(object)) {}

  const nlohmann::json& at(const std::string& key) const {  // NOLINT: hides json's on purpose
    read.insert(key);
    return nlohmann::json::at(key);
  }
  // Returns a JSON object with only the fields that a caller has read with at().
  nlohmann::ordered_json kept() const;

  mutable std::set<std::string> read;
};

// The results that a training run wrote to the files of train --json and --log.
struct TrainResult {
  std::vector<Fields> steps;
  Fields last;       // the last line of --json, which has "final": true
  double seconds{};  // wall time of the run

  double loss(size_t step) const { return steps.at(step).at("loss"); }
  std::string hash() const { return last.at("param_sha256"); }
  // Returns the median of the tokens per second of all steps except the first one.
  double tokens_per_s() const;
  // Returns the field `what` of "seconds" in the fastest step; the first step does not count. The
  // fastest step is used because other programs on the machine can only make a step longer.
  double seconds_of(const std::string& what) const;
};

// Parses `text`, the lines of the file of train --json. Throws std::runtime_error unless the last
// line, and no other line, has "final": true; throws nlohmann::json::parse_error if a line is not
// JSON.
TrainResult parse_train_result(const std::string& text);

}  // namespace fsdp
