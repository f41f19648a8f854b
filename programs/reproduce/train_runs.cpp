#include <base/median.h>
#include <base/whole_file.h>
#include <command_line/child.h>
#include <command_line/commit.h>
#include <reproduce/train_runs.h>
#include <state/checkpoint_folder.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace fsdp {

nlohmann::ordered_json Fields::kept() const {
  nlohmann::ordered_json fields = nlohmann::ordered_json::object();
  for (const auto& [key, value] : items())
    if (read.contains(key)) fields[key] = value;
  return fields;
}

double TrainResult::tokens_per_s() const {
  std::vector<double> all;
  for (size_t step = 1; step < steps.size(); ++step)
    all.push_back(steps[step].at("tokens_per_s"));
  return median(all);
}

double TrainResult::seconds_of(const std::string& what) const {
  const auto length = [](const Fields& step) {
    return step.at("seconds").at("step").get<double>();
  };
  return std::ranges::min_element(steps.begin() + 1, steps.end(), {}, length)
      ->at("seconds")
      .at(what);
}

std::string joined(const TrainOptions& options) {
  std::string text;
  for (const std::string& option : options)
    text += (text.empty() ? "" : " ") + option;
  return text;
}

TrainOptions words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string line, last;
  while (std::getline(lines, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

TrainResult parse_train_result(const std::string& text) {
  TrainResult result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    result.steps.emplace_back(nlohmann::json::parse(line));
  const auto final = [](const Fields& line) { return line.value("final", false); };
  const auto last = std::ranges::find_if(result.steps, final);
  if (last == result.steps.end() || last + 1 != result.steps.end())
    throw std::runtime_error("the last line that train wrote is not the only final one");
  result.last = std::move(*last);
  result.steps.pop_back();
  return result;
}

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

// Whether the program ended well; if not, run.error says why.
bool TrainRuns::child(Run& run, const std::filesystem::path& program, TrainOptions arguments) {
  if (isatty(STDERR_FILENO) == 1)
    std::fprintf(stderr, "run %zu: %s\n", runs_.size(), joined(run.options).c_str());
  const auto log = folder() / "output";
  const auto start = std::chrono::steady_clock::now();
  arguments.insert(arguments.begin(), program.string());
  const bool succeeded = run_child(arguments, log).ok();
  run.result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  run.output = content_of(log);
  if (succeeded) return true;
  run.error = last_line(run.output);
  if (run.error.empty()) run.error = program.filename().string() + " failed and said nothing";
  return false;
}

void TrainRuns::command(Run& run) {
  child(run, source_root() + "/fsdp", run.options);
}

void TrainRuns::train(Run& run) {
  const std::string file = (folder() / std::to_string(runs_.size())).string();
  TrainOptions arguments = run.options;
  for (std::string& argument : arguments)
    if (argument.starts_with("%/")) argument = (folder() / argument.substr(2)).string();
  arguments.insert(arguments.end(), {"--log", file + ".log", "--json", file + ".json"});
  if (!child(run, train_, arguments)) return;
  try {
    const double seconds = run.result.seconds;
    run.result = parse_train_result(content_of(file + ".json"));
    run.result.seconds = seconds;
    std::istringstream log(content_of(file + ".log"));
    std::string line;
    for (size_t step = 0; std::getline(log, line) && step < run.result.steps.size(); ++step)
      run.result.steps[step].update(nlohmann::json::parse(line));
    const auto option = std::ranges::find(arguments, "--checkpoint-dir");
    if (option != arguments.end()) {
      const Description saved = read_description(step_folders(option[1]).rbegin()->second);
      int64_t bytes = 0;
      for (const SavedFile& one : saved.files)
        bytes += one.bytes;
      run.result.last["checkpoint_files"] = saved.files.size();
      run.result.last["checkpoint_bytes"] = bytes;
    }
  } catch (const std::exception& error) {
    run.error = error.what();
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
