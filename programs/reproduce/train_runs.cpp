#include <reproduce/train_runs.h>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

extern char** environ;

namespace fsdp {
namespace {

volatile sig_atomic_t running_child = 0;
volatile sig_atomic_t asked_to_end = 0;

void pass_on(int signal) {
  asked_to_end = signal;
  if (running_child > 0) kill(running_child, signal);
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string line, last;
  while (std::getline(lines, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

std::string joined(const TrainOptions& options) {
  std::string text;
  for (const std::string& option : options)
    text += (text.empty() ? "" : " ") + option;
  return text;
}

// Runs a program with its output in `log`; its exit status as waitpid() tells it.
int spawn_and_wait(const std::filesystem::path& program, TrainOptions arguments,
                   const std::filesystem::path& log) {
  std::string name = program.string();
  std::vector<char*> argv{name.data()};
  for (std::string& argument : arguments)
    argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, name.c_str(), &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw std::runtime_error(name + ": " + std::strerror(error));
  running_child = child;
  if (asked_to_end != 0) kill(child, asked_to_end);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  running_child = 0;
  return status;
}

}  // namespace

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
  struct sigaction action {};
  action.sa_handler = pass_on;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
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
  const int status = spawn_and_wait(train_, arguments, log);
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (asked_to_end != 0) {
    std::filesystem::remove_all(folder_);
    signal(asked_to_end, SIG_DFL);
    raise(asked_to_end);
  }
  if (status != 0) {
    const std::string line = last_line(contents(log));
    run.error = line.empty() ? "train failed and said nothing" : line;
    return;
  }
  try {
    run.result = parse_train_result(contents(file));
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
