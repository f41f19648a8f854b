#include <base/mapping.h>
#include <base/memory_file.h>
#include <base/whole_file.h>
#include <command_line/child.h>
#include <fcntl.h>
#include <reproduce/long_run.h>
#include <reproduce/report.h>
#include <state/checkpoint_folder.h>
#include <sys/file.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Files {
  fs::path folder;
  fs::path options{folder / "options"}, log{folder / "log.jsonl"}, memory{folder / "memory.json"},
      output{folder / "output"}, result{folder / "result.json"},
      checkpoints{folder / "checkpoints"};
};

// [bytes] The value of `key`, in KiB, in a file of /proc; 0 if the file lacks it.
int64_t bytes_of(const fs::path& file, const std::string& key) {
  return std::atoll(field(file, key).c_str()) * 1024;
}

int64_t shared_memory_of_machine() {
  return bytes_of("/proc/meminfo", "Shmem");
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

// What a Watcher has written: seconds, peak and swapped.
Json measured(const Files& files) {
  const std::string text = content_of(files.memory);
  return text.empty() ? Json{{"seconds", 0}, {"peak", 0}, {"swapped", 0}} : Json::parse(text);
}

// Measures a run each second, and shows how far it is. A run that goes on adds to what is measured.
class Watcher {
 public:
  Watcher(const LongRun& run, const Files& files)
      : run_(run), files_(files), most_(measured(files)) {}

  void operator()(int process) {
    const int64_t shared = shared_memory_of_machine();
    shared_of_others_ = std::min(shared_of_others_, shared);  // a run before may still be freed
    int64_t held = shared - shared_of_others_, swapped = 0;
    for (const int one : with_children(process)) {
      const fs::path status = "/proc/" + std::to_string(one) + "/status";
      held += bytes_of(status, "RssAnon");
      swapped += bytes_of(status, "VmSwap");
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    most_ = {{"seconds", before_ + seconds.count()},
             {"peak", std::max(held, most_["peak"].get<int64_t>())},
             {"swapped", std::max(swapped, most_["swapped"].get<int64_t>())}};
    write_whole_file(files_.memory, most_.dump());
    show(before_ + seconds.count(), held);
  }

 private:
  // A line at each step.
  void show(double seconds, int64_t held) {
    const size_t done = logged_steps(files_.log).size();
    if (std::exchange(shown_, done) == done) return;
    const double each = seconds / static_cast<double>(done);
    const double left = each * static_cast<double>(run_.steps) - seconds;
    std::fprintf(stderr, "%s: step %zu of %lld, %.0f min, about %.0f min left, %.1f GiB\n",
                 run_.name.c_str(), done, static_cast<long long>(run_.steps), seconds / 60,
                 left / 60, static_cast<double>(held) / kGiB);
  }

  const LongRun& run_;
  const Files& files_;
  const std::chrono::steady_clock::time_point start_{std::chrono::steady_clock::now()};
  int64_t shared_of_others_{shared_memory_of_machine()};
  size_t shown_{};  // steps
  Json most_;
  const double before_ = most_["seconds"];  // that the run took before it was interrupted
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

LongResult read(const LongRun& run, const Files& files) {
  LongResult all{run.options, parse_train_result(content_of(files.result))};
  all.result.steps = logged_steps(files.log);
  if (static_cast<int64_t>(all.result.steps.size()) != run.steps)
    throw std::runtime_error(files.log.string() + ": has " +
                             std::to_string(all.result.steps.size()) + " of " +
                             std::to_string(run.steps) + " steps; remove the folder");
  const Json most = measured(files);
  all.result.seconds = most.at("seconds");
  all.peak = most.at("peak");
  all.swapped = most.at("swapped");
  return all;
}

}  // namespace

LongResult run_or_go_on(const fs::path& program, const fs::path& parent, const LongRun& run) {
  const Files files{parent / run.name};
  fs::create_directories(files.folder);
  // Held while the run is under way, by the program that it runs too.
  const OpenFile lock(open((files.folder / "lock").c_str(), O_RDWR | O_CREAT, 0600));
  if (lock.descriptor < 0 || flock(lock.descriptor, LOCK_EX | LOCK_NB) != 0)
    throw std::runtime_error(files.folder.string() + ": a run is under way there; wait, or end it");
  const std::string known = content_of(files.options);
  if (!known.empty() && known != joined(run.options))
    throw std::runtime_error(files.folder.string() + ": holds another run, train " + known +
                             "; remove it or give another --folder");
  if (fs::exists(files.result)) return read(run, files);
  require_room(run, files.folder);
  write_whole_file(files.options, joined(run.options));

  std::vector<std::string> command = run.options;
  const std::string unfinished = files.result.string() + ".part";
  command.insert(command.begin(), program);
  command.insert(command.end(), {"--log", files.log, "--json", unfinished, "--checkpoint-dir",
                                 files.checkpoints, "--save-every", "3", "--keep", "1"});
  if (std::ranges::find(command, "--offload") != command.end())
    command.insert(command.end(), {"--offload-dir", parent});
  fs::remove(unfinished);  // of a run that failed
  if (!step_folders(files.checkpoints).empty()) {
    command.insert(command.end(), {"--resume", files.checkpoints});
  } else {
    fs::remove(files.log);  // of steps that come again
  }
  Watcher watcher(run, files);
  if (!run_child(command, files.output, std::ref(watcher)).ok())
    throw std::runtime_error(run.name + ": " + last_line(content_of(files.output)) + " (see " +
                             files.output.string() + "; the same command goes on)");
  fs::rename(unfinished, files.result);
  fs::remove_all(files.checkpoints);
  return read(run, files);
}

nlohmann::ordered_json to_json(const LongResult& all) {
  Json json{{"options", joined(all.options)},
            {"seconds", all.result.seconds},
            {"peak", all.peak},
            {"swapped", all.swapped}};
  for (const Fields& step : all.result.steps)
    json["steps"].push_back(step.kept());
  json["last"] = all.result.last.kept();
  return json;
}

}  // namespace fsdp
