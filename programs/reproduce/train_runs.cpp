#include <base/whole_file.h>
#include <command_line/child.h>
#include <command_line/commit.h>
#include <reproduce/last_line.h>
#include <reproduce/train_runs.h>
#include <state/checkpoint_folder.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace fsdp {

namespace {

// Returns the results that a run of train wrote to FILE.json and FILE.log.
TrainResult result_in(const std::string& file) {
  TrainResult result = parse_train_result(content_of(file + ".json"));
  std::istringstream log(content_of(file + ".log"));
  std::string line;
  for (size_t step = 0; std::getline(log, line) && step < result.steps.size(); ++step)
    result.steps[step].update(nlohmann::json::parse(line));
  return result;
}

// Returns the paths of the receipts in `folder` that runs of the row `name` have left:
// NAME.receipt, NAME-1.receipt, NAME-2.receipt ...
std::vector<std::filesystem::path> receipts_of(const std::string& name,
                                               const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::exists(folder)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string stem = entry.path().stem().string();
    const bool numbered =
        stem.starts_with(name + '-') &&
        stem.find_first_not_of("0123456789", name.size() + 1) == std::string::npos;
    if (entry.path().extension() == ".receipt" && (stem == name || numbered))
      files.push_back(entry.path());
  }
  return files;
}

// Adds two fields to `last`: the bytes and the number of files of the latest checkpoint in
// `folder`.
void add_checkpoint(Fields& last, const std::filesystem::path& folder) {
  const Description saved = read_description(step_folders(folder).rbegin()->second);
  int64_t bytes = 0;
  for (const SavedFile& one : saved.files)
    bytes += one.bytes;
  last["checkpoint_files"] = saved.files.size();
  last["checkpoint_bytes"] = bytes;
}

}  // namespace

const TrainResult& TrainRuns::operator()(const TrainOptions& options) {
  return run_once(options, &TrainRuns::train).result;
}

std::string TrainRuns::output(const std::string& command) {
  return run_once(words(command), &TrainRuns::command).output;
}

TrainRuns::Run& TrainRuns::run_once(const TrainOptions& options, void (TrainRuns::*run)(Run&)) {
  const auto [place, is_new] = runs_.try_emplace(options, Run{options, {}, {}, {}});
  Run& known = place->second;
  if (is_new) (this->*run)(known);
  if (std::ranges::find(used_, &known) == used_.end()) used_.push_back(&known);
  if (!known.error.empty()) throw std::runtime_error(known.error);
  return known;
}

std::string TrainRuns::path_of(const std::string& argument) const {
  return argument.starts_with("%/") ? (folder() / argument.substr(2)).string() : argument;
}

// Runs the program and returns whether it succeeded. If it failed, sets run.error to the last line
// that the program printed.
bool TrainRuns::child(Run& run, const std::filesystem::path& program, TrainOptions arguments) {
  if (isatty(STDERR_FILENO) == 1)
    std::fprintf(stderr, "run %zu: %s\n", runs_.size(), joined(run.options).c_str());
  const auto log = folder() / "output";
  const auto start = std::chrono::steady_clock::now();
  for (std::string& argument : arguments)
    argument = path_of(argument);
  arguments.insert(arguments.begin(), program.string());
  const bool succeeded = run_child(arguments, log).ok();
  run.result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  run.output = content_of(log);
  if (succeeded) return true;
  run.error = last_line(run.output);
  if (run.error.empty()) run.error = program.filename().string() + " failed without output";
  return false;
}

void TrainRuns::command(Run& run) {
  child(run, source_root() + "/fsdp", run.options);
}

void TrainRuns::train(Run& run) {
  const std::string file = (folder() / std::to_string(runs_.size())).string();
  TrainOptions arguments = run.options;
  arguments.insert(arguments.end(), {"--log", file + ".log", "--json", file + ".json"});
  if (!child(run, train_, arguments)) return;
  try {
    const double seconds = run.result.seconds;
    run.result = result_in(file);
    run.result.seconds = seconds;
    const std::string checkpoints = value_of(arguments, "--checkpoint-dir");
    if (!checkpoints.empty()) add_checkpoint(run.result.last, path_of(checkpoints));
  } catch (const std::exception& error) {
    run.error = error.what();
  }
}

void TrainRuns::move_receipts(const std::string& name, const std::filesystem::path& into) const {
  for (const auto& old : receipts_of(name, into))
    std::filesystem::remove(old);
  for (const auto& file : receipts_of(name, folder())) {
    std::filesystem::create_directories(into);
    // The receipts are copied and not renamed, because the two folders may be on different disks.
    std::filesystem::copy_file(file, into / file.filename());
    std::filesystem::remove(file);
  }
}

nlohmann::ordered_json TrainRuns::take_json() {
  auto all = std::exchange(kept_, nlohmann::ordered_json::array());
  for (const Run* run : used_) {
    nlohmann::ordered_json entry{{"options", joined(run->options)},
                                 {"seconds", std::round(10 * run->result.seconds) / 10}};
    if (!run->error.empty()) {
      entry["error"] = run->error;
    } else if (run->result.last.empty()) {
      entry["output"] = run->output;
    } else {
      for (const Fields& step : run->result.steps) {
        if (step.read.empty()) continue;
        step.read.insert("step");
        entry["steps"].push_back(step.kept());
      }
      entry["last"] = run->result.last.kept();
    }
    all.push_back(entry);
  }
  used_.clear();
  return all;
}

}  // namespace fsdp
