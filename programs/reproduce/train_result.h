#pragma once

#include <nlohmann/json.hpp>

#include <set>
#include <string>
#include <vector>

namespace fsdp {

// A JSON object that records which of its fields were read with at().
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

// The results that a run of train wrote with --json and --log.
struct TrainResult {
  std::vector<Fields> steps;
  Fields last;       // the line with "final": true
  double seconds{};  // wall time of the run

  double loss(size_t step) const { return steps.at(step).at("loss"); }
  std::string hash() const { return last.at("param_sha256"); }
  // Returns the median over all steps except the first one.
  double tokens_per_s() const;
  // Returns the field `what` of "seconds" in the fastest of the steps after the first one. The
  // fastest step counts because other programs on the machine can only make a step longer.
  double seconds_of(const std::string& what) const;
};

// Reads the lines of --json. Throws std::runtime_error unless the last line, and only the last, is
// final; throws nlohmann::json::parse_error if a line is not JSON.
TrainResult parse_train_result(const std::string& text);

}  // namespace fsdp
