#include <base/whole_file.h>
#include <reproduce/child.h>
#include <reproduce/train_runs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <stdexcept>

namespace fsdp {

std::string joined(const TrainOptions& options) {
  std::string text;
  for (const std::string& option : options)
    text += (text.empty() ? "" : " ") + option;
  return text;
}

TrainResult parse_train_result(const std::string& text) {
  TrainResult result;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (!result.last.is_null()) throw std::runtime_error("train wrote lines after the final one");
    auto json = nlohmann::json::parse(line);
    if (json.value("final", false)) {
      result.last = std::move(json);
    } else {
      result.steps.push_back(std::move(json));
    }
  }
  if (result.last.is_null()) throw std::runtime_error("train wrote no final line");
  return result;
}

TrainRuns::TrainRuns(std::filesystem::path train) : train_(std::move(train)) {
  std::string name = (std::filesystem::temp_directory_path() / "fsdp-reproduce-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error(name + ": " + std::strerror(errno));
  }
  folder_ = name;
  pass_on_signals();
}

TrainRuns::~TrainRuns() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

const TrainResult& TrainRuns::operator()(const TrainOptions& options) {
  Run*& known = by_options_[options];
  if (known == nullptr) {
    runs_.push_back(std::make_unique<Run>(Run{options, {}, {}, {}}));
    known = runs_.back().get();
    run(*known);
  }
  if (!known->error.empty()) throw std::runtime_error(known->error);
  return known->result;
}

void TrainRuns::run(Run& run) {
  const bool terminal = isatty(STDERR_FILENO) == 1;
  if (terminal) {
    std::fprintf(stderr, "run %zu: train %s\n", runs_.size(), joined(run.options).c_str());
  }
  const auto file = folder_ / (std::to_string(runs_.size()) + ".json");
  const auto log = folder_ / "log";
  TrainOptions arguments = run.options;
  arguments.insert(arguments.end(), {"--json", file.string()});
  const auto start = std::chrono::steady_clock::now();
  const bool succeeded = run_child(train_, arguments, log);
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (ending_signal() != 0) {
    std::filesystem::remove_all(folder_);
    end_by(ending_signal());
  }
  if (!succeeded) {
    const std::string line = last_line(content_of(log));
    run.error = line.empty() ? "train failed and said nothing" : line;
    return;
  }
  try {
    run.result = parse_train_result(content_of(file));
  } catch (const std::exception& error) {
    run.error = error.what();
  }
}

nlohmann::ordered_json TrainRuns::json() const {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const auto& run : runs_) {
    nlohmann::ordered_json entry{{"options", joined(run->options)}, {"seconds", run->seconds}};
    if (run->error.empty()) {
      entry["lines"] = run->result.steps;
      entry["lines"].emplace_back(run->result.last);
    } else {
      entry["error"] = run->error;
    }
    all.push_back(entry);
  }
  return all;
}

}  // namespace fsdp
