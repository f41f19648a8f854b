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

// Returns the result of a run of train for a table. Throws std::runtime_error if the run fails.
using Train = std::function<const TrainResult&(const TrainOptions&)>;
// Returns the output of a command of ./fsdp, such as "bench --transport", for a table. Throws
// std::runtime_error if ./fsdp fails.
using Output = std::function<std::string(const std::string& command)>;

// Runs the program `train`, and ./fsdp. It makes one run at a time, and each run only once. If
// stderr is a terminal, it prints each run's options there. The runs' files are in a temporary
// folder, which the destructor removes.
class TrainRuns {
 public:
  explicit TrainRuns(std::filesystem::path train) : train_(std::move(train)) {}

  // Both calls: an argument "%/NAME" is a file in folder().

  // Returns the result of a run of train.
  // - With --checkpoint-dir, `last` of the result also has checkpoint_bytes and checkpoint_files.
  // Throws: std::runtime_error with the last line of output if the program fails, and what
  // run_child() throws.
  const TrainResult& operator()(const TrainOptions& options);
  // Returns the output of "./fsdp COMMAND". Throws as operator() does.
  std::string output(const std::string& command);
  const std::filesystem::path& folder() const { return folder_.path(); }
  // Returns an entry for every run that was used since the last call: its options, its seconds, and
  // the fields of its lines that tables have read, or its output, or its error.
  nlohmann::ordered_json take_json();
  // Moves the receipts that runs of the row `name` have left in folder() into `into`, which it
  // creates if there are any. Removes those of an earlier run of the row from there. Throws
  // std::filesystem::filesystem_error.
  void move_receipts(const std::string& name, const std::filesystem::path& into) const;
  // Adds an entry to what take_json() returns next.
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
  // Returns the path of the file that an argument "%/NAME" names; other arguments unchanged.
  std::string path_of(const std::string& argument) const;
  bool child(Run& run, const std::filesystem::path& program, TrainOptions arguments);

  std::filesystem::path train_;
  OwnFolder folder_{"fsdp-reproduce"};
  std::map<TrainOptions, Run> runs_;
  std::vector<Run*> used_;  // since the last take_json()
  nlohmann::ordered_json kept_ = nlohmann::ordered_json::array();
};

}  // namespace fsdp
