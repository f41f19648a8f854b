#pragma once

#include <command_line/child.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace fsdp {

// An object of JSON that notes which of its fields tables read.
struct Fields : nlohmann::json {
  using nlohmann::json::json;
  Fields(nlohmann::json object = object_t()) : nlohmann::json(std::move(object)) {}

  const nlohmann::json& at(const std::string& key) const {  // NOLINT: hides json's on purpose
    read.insert(key);
    return nlohmann::json::at(key);
  }
  nlohmann::ordered_json kept() const;  // what was read

  mutable std::set<std::string> read;
};

// What a run of the train program wrote with --json and --log.
struct TrainResult {
  std::vector<Fields> steps;
  Fields last;       // the line with "final": true
  double seconds{};  // that the run took

  double loss(size_t step) const { return steps.at(step).at("loss"); }
  std::string hash() const { return last.at("param_sha256"); }
  // Of the steps but the first: the median, and a field of `seconds` of the quickest, since what
  // else runs on the machine only adds to a step.
  double tokens_per_s() const;
  double seconds_of(const std::string& what) const;
};

// Throws std::runtime_error unless `text` is lines of JSON of which the last alone is final.
TrainResult parse_train_result(const std::string& text);

// The options of a run, without --json and --log. They identify it.
using TrainOptions = std::vector<std::string>;
std::string joined(const TrainOptions& options);  // by spaces
TrainOptions words(const std::string& text);      // the inverse
std::string last_line(const std::string& text);   // that is not empty; "" if there is none

// Gives a table the result of a run. Throws std::runtime_error if the run failed.
using Train = std::function<const TrainResult&(const TrainOptions&)>;
// Gives a table what ./fsdp prints, as "bench --transport". Throws as Train does.
using Output = std::function<std::string(const std::string& command)>;

// Runs the program `train`, and ./fsdp: one run at a time, and each once. Shows its progress on
// stderr if that is a terminal. Its files lie in a temporary folder, which the destructor removes.
class TrainRuns {
 public:
  explicit TrainRuns(std::filesystem::path train) : train_(std::move(train)) {}

  // Throws std::runtime_error with the last line of output if the program fails, and what
  // run_child() throws. An option "%/NAME" is a file in folder(). With --checkpoint-dir, `last`
  // also has checkpoint_bytes and checkpoint_files.
  const TrainResult& operator()(const TrainOptions& options);
  std::string output(const std::string& command);
  const std::filesystem::path& folder() const { return folder_.path(); }
  // Of every run since the last call: options, seconds, and of its lines what was read, or error.
  nlohmann::ordered_json take_json();
  void keep(nlohmann::ordered_json run) { kept_.push_back(std::move(run)); }  // for take_json()

 private:
  struct Run {
    TrainOptions options;
    TrainResult result;
    std::string error, output;
  };
  Run& run_once(const TrainOptions& options, void (TrainRuns::*run)(Run&));
  void train(Run& run);
  void command(Run& run);
  bool child(Run& run, const std::filesystem::path& program, TrainOptions arguments);

  std::filesystem::path train_;
  OwnFolder folder_{"fsdp-reproduce"};
  std::map<TrainOptions, Run> runs_;
  std::vector<Run*> used_;  // since the last take_json()
  nlohmann::ordered_json kept_ = nlohmann::ordered_json::array();
};

}  // namespace fsdp
