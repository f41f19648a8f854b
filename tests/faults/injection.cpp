#include <base/whole_file.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <train/trainer.h>
#include <unistd.h>

#include <common/temporary_folder.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "injection.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kTimeout = 1s;    // of each wait of a rank for another one
constexpr auto kMostTime = 60s;  // of a run, on a machine that does much else

const std::string kOld = "what the file held before\n";

TrainConfig config_of(const Injection& injection, const fs::path& folder) {
  TrainConfig config;
  config.mode = injection.mode;
  config.world = injection.world;
  config.model = "gpt2-tiny";
  config.data = "published";
  config.steps = 1'000'000;  // more than it comes to
  config.batch = config.parts = injection.world;
  config.seq = 4;
  config.comm.backend = injection.backend;
  config.comm.timeout = kTimeout;
  config.json = folder / "run.json";
  config.log = folder / "log";
  config.trace = folder / "trace.txt";
  return config;
}

void leave(int) {
  _exit(0);
}

// A training in a session of its own, which ends with this object.
class Run {
 public:
  Run(const TrainConfig& config, const fs::path& folder) {
    mkfifo(config.log.c_str(), 0600);
    log_ = open(config.log.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    std::fflush(nullptr);
    process_ = fork();
    if (process_ == 0) {
      close(log_);  // else the log has a reader for ever, who reads nothing
      train(config, folder);
    }
  }
  ~Run() {
    if (log_ >= 0) close(log_);
    for (const pid_t process : processes())
      kill(process, SIGKILL);
    if (ended_) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  pid_t process() const { return process_; }

  // Its children, in the order of their ranks, once all are there. Empty: it has ended before.
  std::vector<pid_t> ranks(int world) const {
    const std::string id = std::to_string(process_);
    while (!has_ended(0ms)) {
      std::istringstream children(content_of("/proc/" + id + "/task/" + id + "/children"));
      std::vector<pid_t> ranks{std::istream_iterator<pid_t>(children), {}};
      if (static_cast<int>(ranks.size()) == world) return ranks;
    }
    return {};
  }

  // Returns when so many steps are done, or the run has ended.
  void wait_for(int steps) {
    for (int lines = 0; lines < steps && !has_ended(0ms);) {
      pollfd waiting{log_, POLLIN, 0};
      poll(&waiting, 1, 100);
      char text[4096];
      const ssize_t count = read(log_, text, sizeof text);
      lines += static_cast<int>(std::count(text, text + std::max<ssize_t>(count, 0), '\n'));
      if (count == 0) poll(nullptr, 0, 1);  // nobody has opened it yet
    }
  }

  // How it ended, as waitpid() says; nothing if it does not within the time.
  std::optional<int> status(std::chrono::milliseconds most) {
    close(std::exchange(log_, -1));
    if (!has_ended(most)) return std::nullopt;
    int status = 0;
    waitpid(process_, &status, 0);
    ended_ = true;
    return status;
  }

  // Those of its session that are there.
  std::vector<pid_t> processes() const {
    std::vector<pid_t> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string line = content_of(entry.path() / "stat");
      if (line.empty()) continue;  // it has ended
      std::istringstream fields(line.substr(line.rfind(')') + 1));
      std::string state;
      pid_t parent = 0, group = 0, session = 0;
      fields >> state >> parent >> group >> session;
      if (session == process_) found.push_back(std::stoi(name));
    }
    return found;
  }

 private:
  [[noreturn]] static void train(const TrainConfig& config, const fs::path& folder) {
    setsid();
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
      ::signal(signal, SIG_DFL);
    signal(SIGUSR1, leave);
    const rlimit no_core_files{};
    setrlimit(RLIMIT_CORE, &no_core_files);
    dup2(open((folder / "story").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    const int status = run_training(config, {make_fsdp_strategy, shard_layout}, "program");
    std::fflush(nullptr);
    _exit(status);
  }

  bool has_ended(std::chrono::milliseconds most) const {
    const int self = static_cast<int>(syscall(SYS_pidfd_open, process_, 0));
    pollfd waiting{self, POLLIN, 0};
    const bool ended = poll(&waiting, 1, static_cast<int>(most.count())) == 1;
    close(self);
    return ended;
  }

  pid_t process_{};
  int log_;
  bool ended_{};
};

const std::map<std::string, int>& signals() {
  static const std::map<std::string, int> all{
      {"SIGKILL", SIGKILL}, {"SIGSEGV", SIGSEGV}, {"SIGSTOP", SIGSTOP}, {"SIGTERM", SIGTERM},
      {"SIGINT", SIGINT},   {"SIGHUP", SIGHUP},   {"SIGQUIT", SIGQUIT}, {"exit", SIGUSR1}};
  return all;
}

std::string wrong_status(const Injection& injection, int status) {
  if (injection.rank >= 0) {
    return WIFEXITED(status) && WEXITSTATUS(status) == 1 ? "" : "its status is no 1";
  }
  const int signal = signals().at(injection.what);
  return WIFSIGNALED(status) && WTERMSIG(status) == signal ? "" : "the signal did not end it";
}

std::string wrong_story(const Injection& injection, const std::string& story) {
  if (injection.rank < 0) return "";
  const std::map<std::string, std::string> fates{
      {"SIGKILL", " was killed by signal 9 (Killed)"},
      {"SIGSEGV", " was killed by signal 11 (Segmentation fault)"},
      {"SIGSTOP", " was stopped by signal 19 (Stopped (signal))"},
      {"exit", " has ended with status 0"}};
  const std::string fate = "rank " + std::to_string(injection.rank) + fates.at(injection.what);
  return story.find(fate) != std::string::npos ? "" : "nobody says '" + fate + "'";
}

std::string wrong_files(const TrainConfig& config, const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename());
  for (const std::string& name : names) {
    if (!std::set<std::string>{"log", "run.json", "story", "trace.txt"}.contains(name))
      return "it leaves a file " + name;
  }
  if (content_of(config.json) != kOld) return "the JSON file is not as before";
  const std::string trace = content_of(config.trace);
  if (trace.empty() || trace.back() != '\n') return "there is no whole timeline";
  for (const auto& entry : fs::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("fsdp") || name.starts_with("torch_")) return "it leaves /dev/shm/" + name;
  }
  return "";
}

}  // namespace

Injection draw(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<uint64_t>(end));
  };
  Injection injection;
  injection.world = 2 << below(3);
  injection.backend = below(2) == 0 ? "shm" : "gloo";
  injection.mode = below(2) == 0 ? "fsdp" : "ddp";
  const bool to_a_rank = below(3) != 0;
  const std::vector<std::string> whats =
      to_a_rank ? std::vector<std::string>{"SIGKILL", "SIGSEGV", "SIGSTOP", "exit"}
                : std::vector<std::string>{"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"};
  injection.what = whats[static_cast<size_t>(below(4))];
  injection.rank = to_a_rank ? below(injection.world) : -1;
  injection.steps = below(6);
  injection.microseconds = below(injection.steps == 0 ? 200'000 : 20'000);
  return injection;
}

std::string text(const Injection& injection) {
  return injection.mode + " on " + std::to_string(injection.world) + " ranks over " +
         injection.backend + ", " + injection.what + " to " +
         (injection.rank < 0 ? "the launcher" : "rank " + std::to_string(injection.rank)) +
         ", after " + std::to_string(injection.steps) + " steps and " +
         std::to_string(injection.microseconds) + " us";
}

std::string wrong_end(const Injection& injection) {
  const TemporaryFolder temporary;
  const fs::path folder = temporary.path();
  const TrainConfig config = config_of(injection, folder);
  temporary.write("run.json", kOld);
  Run run(config, folder);
  const auto ranks = run.ranks(injection.world);
  run.wait_for(injection.steps);
  usleep(static_cast<useconds_t>(injection.microseconds));  // the moment is to be any
  const std::string story = folder / "story";
  if (ranks.empty()) return "it ended before the ranks were there:\n" + content_of(story);
  const pid_t whom =
      injection.rank < 0 ? run.process() : ranks[static_cast<size_t>(injection.rank)];
  kill(whom, signals().at(injection.what));
  const auto status = run.status(kMostTime);
  const std::string told = content_of(story);
  if (!status) return "it did not end:\n" + told;
  std::string wrong = wrong_status(injection, *status);
  if (wrong.empty()) wrong = wrong_story(injection, told);
  if (wrong.empty()) wrong = wrong_files(config, folder);
  if (wrong.empty() && !run.processes().empty()) wrong = "processes are left";
  return wrong.empty() ? "" : wrong + ":\n" + told;
}

}  // namespace fsdp
