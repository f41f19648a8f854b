#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// What a run of the train program wrote with --json.
struct TrainResult {
  std::vector<nlohmann::json> steps;
  nlohmann::json last;  // the line with "final": true

  double loss(size_t step) const { return steps.at(step).at("loss"); }
  std::string hash() const { return last.at("param_sha256"); }
};

// Throws std::runtime_error unless `text` is lines of JSON of which the last alone is final.
TrainResult parse_train_result(const std::string& text);

// The options of a run, without --json. They identify it.
using TrainOptions = std::vector<std::string>;
std::string joined(const TrainOptions& options);  // by spaces

// Gives a table the result of a run. Throws std::runtime_error if the run failed.
using Train = std::function<const TrainResult&(const TrainOptions&)>;

// Runs the program `train`: one run at a time, and each once. Shows its progress on stderr if that
// is a terminal. Its files lie in a temporary folder, which the destructor removes.
class TrainRuns {
 public:
  explicit TrainRuns(std::filesystem::path train);
  ~TrainRuns();
  TrainRuns(const TrainRuns&) = delete;
  TrainRuns& operator=(const TrainRuns&) = delete;

  // Throws std::runtime_error with the last line of output if the program fails. SIGINT and SIGTERM
  // are passed on to the program, and then end this process.
  const TrainResult& operator()(const TrainOptions& options);
  const std::filesystem::path& folder() const { return folder_; }
  nlohmann::ordered_json json() const;  // of every run: options, seconds, lines or error

 private:
  struct Run {
    TrainOptions options;
    TrainResult result;
    std::string error;
    double seconds{};
  };
  void run(Run& run);

  std::filesystem::path train_, folder_;
  std::vector<std::unique_ptr<Run>> runs_;
  std::map<TrainOptions, Run*> by_options_;
};

}  // namespace fsdp
