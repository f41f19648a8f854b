#include <base/whole_file.h>
#include <fcntl.h>
#include <reproduce/child.h>
#include <reproduce/long_run.h>
#include <state/checkpoint_folder.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>

namespace fsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kGiB = 1 << 30;

// The files of a run.
struct Files {
  explicit Files(const fs::path& folder)
      : options(folder / "options"),
        log(folder / "log.jsonl"),
        memory(folder / "memory.jsonl"),
        output(folder / "output"),
        result(folder / "result.json"),
        checkpoints(folder / "checkpoints") {}

  fs::path options, log, memory, output, result, checkpoints;
};

// The number behind `key` in a file of /proc, in KiB; 0 if there is none.
int64_t kib(const fs::path& file, const std::string& key) {
  std::ifstream lines(file);
  std::string line;
  while (std::getline(lines, line))
    if (line.starts_with(key)) return std::stoll(line.substr(key.size()));
  return 0;
}

int64_t shared_memory_of_machine() {
  return kib("/proc/meminfo", "Shmem:") * 1024;
}

// The process and those that it has started.
std::vector<int> with_children(int process) {
  std::vector<int> all{process};
  const std::string number = std::to_string(process);
  std::ifstream children("/proc/" + number + "/task/" + number + "/children");
  for (int child = 0; children >> child;) {
    const auto more = with_children(child);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

std::vector<MemorySample> read_memory(const fs::path& file) {
  std::vector<MemorySample> samples;
  std::ifstream lines(file);
  std::string line;
  while (std::getline(lines, line)) {
    const auto json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) continue;  // the run was killed while it wrote
    samples.push_back({json["seconds"], json["anonymous"], json["shared"], json["swapped"]});
  }
  return samples;
}

Json to_json(const MemorySample& sample) {
  return {{"seconds", std::round(sample.seconds)},
          {"anonymous", sample.anonymous},
          {"shared", sample.shared},
          {"swapped", sample.swapped}};
}

// Samples the memory of a run each second, and shows how far it is.
class Watcher {
 public:
  Watcher(const LongRun& run, const Files& files) : run_(run), files_(files) {
    const auto before = read_memory(files.memory);
    if (!before.empty()) before_ = before.back().seconds;
    steps_before_ = steps();
  }

  void operator()(int process) {
    const int64_t shared = shared_memory_of_machine();
    shared_of_others_ = std::min(shared_of_others_, shared);  // a run before may still be freed
    MemorySample now{seconds(), 0, shared - shared_of_others_, 0};
    for (const int one : with_children(process)) {
      const fs::path status = "/proc/" + std::to_string(one) + "/status";
      now.anonymous += kib(status, "RssAnon:") * 1024;
      now.swapped += kib(status, "VmSwap:") * 1024;
    }
    keep(now);
    show(now);
  }

  // Writes what is not written yet.
  void end() {
    if (largest_) std::ofstream(files_.memory, std::ios::app) << to_json(*largest_).dump() << '\n';
    largest_.reset();
    if (terminal_) std::fputc('\n', stderr);
  }

  double seconds() const {
    return before_ +
           std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  void keep(const MemorySample& now) {
    if (largest_ && now.seconds - first_ >= kSampleSeconds) {
      std::ofstream(files_.memory, std::ios::app) << to_json(*largest_).dump() << '\n';
      largest_.reset();
    }
    if (!largest_) first_ = now.seconds;
    if (!largest_ || now.anonymous + now.shared > largest_->anonymous + largest_->shared)
      largest_ = now;
  }

  int64_t steps() const {
    const std::string log = content_of(files_.log);
    const auto last = Json::parse(last_line(log), nullptr, /*allow_exceptions=*/false);
    return last.is_object() ? last.value("step", int64_t{-1}) + 1 : 0;
  }

  // A bar on a terminal; elsewhere a line at each step.
  void show(const MemorySample& now) {
    const int64_t done = steps();
    if (!terminal_ && done == shown_) return;
    if (done != shown_) step_at_ = now.seconds;
    const bool first = done <= steps_before_;
    if (done != shown_ && first_at_ == 0 && !first) {
      first_at_ = now.seconds;
      first_step_ = done;
    }
    shown_ = done;
    std::string left;
    if (done > first_step_ && first_at_ > 0) {
      const double each = (step_at_ - first_at_) / static_cast<double>(done - first_step_);
      const double rest = each * static_cast<double>(run_.steps - done) - (now.seconds - step_at_);
      left =
          ", about " + std::to_string(std::max<int64_t>(1, std::llround(rest / 60))) + " min left";
    }
    const auto filled = static_cast<size_t>(20 * done / run_.steps);
    std::fprintf(stderr, "%s%s: step %lld of %lld [%s%s] %.0f min%s, %.1f GiB   %s",
                 terminal_ ? "\r" : "", run_.name.c_str(), static_cast<long long>(done),
                 static_cast<long long>(run_.steps), std::string(filled, '#').c_str(),
                 std::string(20 - filled, '-').c_str(), now.seconds / 60, left.c_str(),
                 static_cast<double>(now.anonymous + now.shared) / kGiB, terminal_ ? "" : "\n");
  }

  const LongRun& run_;
  const Files& files_;
  const bool terminal_{isatty(STDERR_FILENO) == 1};
  int64_t shared_of_others_{shared_memory_of_machine()};
  const std::chrono::steady_clock::time_point start_{std::chrono::steady_clock::now()};
  double before_{};  // [s] that the run took before it was interrupted
  std::optional<MemorySample> largest_;
  double first_{};          // of the samples of which it is the largest: when
  int64_t steps_before_{};  // that the run had done then
  int64_t shown_{-1};       // steps
  double step_at_{};        // when the last step was seen
  double first_at_{};       // and the first one of this part of the run
  int64_t first_step_{};    // which it was
};

// Held while a run is under way, by the program that it runs too.
class Lock {
 public:
  explicit Lock(const fs::path& folder)
      : file_(open((folder / "lock").c_str(), O_RDWR | O_CREAT, 0600)) {
    if (file_ >= 0 && flock(file_, LOCK_EX | LOCK_NB) == 0) return;
    if (file_ >= 0) close(file_);
    throw std::runtime_error(folder.string() + ": a run is under way there; wait, or end it");
  }
  ~Lock() { close(file_); }
  Lock(const Lock&) = delete;

 private:
  int file_;
};

int64_t bytes_in(const fs::path& folder) {
  int64_t bytes = 0;
  if (!fs::is_directory(folder)) return bytes;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

// A checkpoint is complete before the one before it is removed. The moments are two thirds of it.
void require_room(const LongRun& run, const fs::path& folder) {
  const int64_t needed = 2 * run.state_bytes + run.state_bytes / 3 * 2 - bytes_in(folder);
  const auto free = static_cast<int64_t>(fs::space(folder).available);
  if (needed <= free) return;
  throw std::runtime_error(folder.string() + ": needs " + std::to_string(needed / 1'000'000'000) +
                           " GB on the disk, and " + std::to_string(free / 1'000'000'000) +
                           " GB are free; give another --folder");
}

// The lines that the run has logged, the last one of each step: some may have run twice.
std::vector<Fields> logged_steps(const fs::path& file) {
  std::map<int64_t, nlohmann::json> steps;
  std::ifstream lines(file);
  std::string line;
  while (std::getline(lines, line)) {
    auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("loss")) steps[json.at("step")] = json;
  }
  std::vector<Fields> result;
  for (auto& [step, json] : steps)
    result.push_back(std::move(json));
  return result;
}

LongResult read(const LongRun& run, const Files& files) {
  LongResult result;
  result.result.last = parse_train_result(content_of(files.result)).last;
  result.result.steps = logged_steps(files.log);
  if (static_cast<int64_t>(result.result.steps.size()) != run.steps)
    throw std::runtime_error(files.log.string() + ": has " +
                             std::to_string(result.result.steps.size()) + " of " +
                             std::to_string(run.steps) + " steps; remove the folder");
  result.memory = read_memory(files.memory);
  if (!result.memory.empty()) result.seconds = result.memory.back().seconds;
  return result;
}

}  // namespace

int64_t LongResult::peak() const {
  int64_t peak = 0;
  for (const auto& sample : memory)
    peak = std::max(peak, sample.anonymous + sample.shared);
  return peak;
}

int64_t LongResult::swapped() const {
  int64_t most = 0;
  for (const auto& sample : memory)
    most = std::max(most, sample.swapped);
  return most;
}

LongResult run_or_go_on(const fs::path& program, const fs::path& parent, const LongRun& run) {
  const fs::path folder = parent / run.name;
  const Files files(folder);
  fs::create_directories(folder);
  const Lock lock(folder);
  const std::string known = content_of(files.options);
  if (!known.empty() && known != joined(run.options))
    throw std::runtime_error(folder.string() + ": holds another run, train " + known +
                             "; remove it or give another --folder");
  if (fs::exists(files.result)) return read(run, files);
  require_room(run, folder);
  std::ofstream(files.options) << joined(run.options);

  TrainOptions options = run.options;
  const std::string unfinished = files.result.string() + ".part";
  options.insert(options.end(), {"--log", files.log, "--json", unfinished, "--checkpoint-dir",
                                 files.checkpoints, "--save-every", "3", "--keep", "1"});
  if (std::ranges::find(options, "--offload") != options.end())
    options.insert(options.end(), {"--offload-dir", parent});
  if (!step_folders(files.checkpoints).empty())
    options.insert(options.end(), {"--resume", files.checkpoints});
  Watcher watcher(run, files);
  const bool succeeded =
      run_child(program, options, files.output, [&](int child) { watcher(child); });
  watcher.end();
  if (ending_signal() != 0) end_by(ending_signal());
  if (!succeeded)
    throw std::runtime_error(run.name + ": " + last_line(content_of(files.output)) + " (see " +
                             files.output.string() + "; the same command goes on)");
  fs::rename(unfinished, files.result);
  fs::remove_all(files.checkpoints);
  return read(run, files);
}

nlohmann::ordered_json to_json(const LongRun& run, const LongResult& result) {
  Json memory = Json::array();
  for (const auto& sample : result.memory)
    memory.push_back(to_json(sample));
  Json steps = Json::array();
  for (const Fields& step : result.result.steps)
    steps.push_back(step.kept());
  return {{"options", joined(run.options)},
          {"seconds", result.seconds},
          {"steps", steps},
          {"last", result.result.last.kept()},
          {"memory", memory}};
}

}  // namespace fsdp
