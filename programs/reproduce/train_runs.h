#pragma once

#include <command_line/child.h>
#include <reproduce/option_text.h>
#include <reproduce/train_result.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// A function that returns the result of a training run with these options. It throws
// std::runtime_error if the run fails.
using Train = std::function<const TrainResult&(const TrainOptions&)>;
// A function that returns the output of a command of ./fsdp, such as "bench --transport". It throws
// std::runtime_error if the command fails.
using Output = std::function<std::string(const std::string& command)>;

// Runs the train program, and commands of ./fsdp. It makes one run at a time, and equal runs only
// once. If stderr is a terminal, it prints each run's options there. The runs' files are in a
// temporary folder, which the destructor removes.
class TrainRuns {
 public:
  explicit TrainRuns(std::filesystem::path train) : train_(std::move(train)) {}

  // In the arguments of operator() and of output(), "%/NAME" is a file in folder().

  // Runs train with these options, unless a run with equal options was made before. Returns the
  // result.
  // - With --checkpoint-dir, `last` of the result also has checkpoint_bytes and checkpoint_files.
  // Throws: std::runtime_error with the last line of output if the program fails, and what
  // run_child() throws.
  const TrainResult& operator()(const TrainOptions& options);
  // Returns what "./fsdp COMMAND" prints. Throws std::runtime_error with the last line of output if
  // the command fails, and what run_child() throws.
  std::string output(const std::string& command);
  const std::filesystem::path& folder() const { return folder_.path(); }
  // Returns a JSON object for every run that operator() or output() was asked for since the last
  // call of take_json(): its options and seconds, and either its error, or the output of a command,
  // or the fields of a training run that the tables have read.
  nlohmann::ordered_json take_json();
  // Moves the receipts that runs of the row `name` have left from folder() to `into`, which it
  // creates if there is a receipt. First removes the row's older receipts from `into`. Throws
  // std::filesystem::filesystem_error.
  void move_receipts(const std::string& name, const std::filesystem::path& into) const;
  // Adds `run`, the JSON of a run, to the list that the next take_json() returns.
  void keep(nlohmann::ordered_json run) { kept_.push_back(std::move(run)); }

 private:
  struct Run {
    TrainOptions options;
    TrainResult result;
    std::string error, output;
  };
  Run& run_once(const TrainOptions& options, void (TrainRuns::*run)(Run&));
  void train(Run& run);
  void command(Run& run);
  // Returns the path of the file in folder() if the argument is "%/NAME"; returns any other
  // argument unchanged.
  std::string path_of(const std::string& argument) const;
  bool child(Run& run, const std::filesystem::path& program, TrainOptions arguments);

  std::filesystem::path train_;
  OwnFolder folder_{"fsdp-reproduce"};
  std::map<TrainOptions, Run> runs_;
  std::vector<Run*> used_;  // the runs that callers have asked for since the last take_json()
  nlohmann::ordered_json kept_ = nlohmann::ordered_json::array();
};

}  // namespace fsdp
