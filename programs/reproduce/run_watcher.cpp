#include <base/file_field.h>
#include <base/whole_file.h>
#include <reproduce/run_watcher.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

// [bytes] Returns the number after `key` in a file of /proc, whose unit there is KiB; 0 if the file
// lacks the key.
int64_t bytes_of(const std::filesystem::path& file, const std::string& key) {
  return std::strtoll(field_of_file(file, key).c_str(), nullptr, 10) * 1024;
}

int64_t shared_memory_of_machine() {
  return bytes_of("/proc/meminfo", "Shmem");
}

// Returns the ids of the process and of all its descendants.
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

}  // namespace

RunUsage read_usage(const LongRunFiles& files) {
  const std::string text = content_of(files.usage);
  if (text.empty()) return {};
  const auto json = nlohmann::json::parse(text);
  return {json.at("seconds"), json.at("peak"), json.at("swapped")};
}

RunWatcher::RunWatcher(std::string name, int64_t steps, const LongRunFiles& files)
    : name_(std::move(name)),
      steps_(steps),
      files_(files),
      before_(read_usage(files)),
      shared_of_others_(shared_memory_of_machine()) {}

void RunWatcher::operator()(int process) {
  const int64_t shared = shared_memory_of_machine();
  // Shared memory of other programs is subtracted: the smallest amount on this machine since the
  // start. The amount at the start can be too large, because the kernel may free the shared memory
  // of an earlier run a little later.
  shared_of_others_ = std::min(shared_of_others_, shared);
  int64_t held = shared - shared_of_others_, swapped = 0;
  for (const int one : with_children(process)) {
    const std::filesystem::path status = "/proc/" + std::to_string(one) + "/status";
    held += bytes_of(status, "RssAnon");
    swapped += bytes_of(status, "VmSwap");
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  usage_ = {before_.seconds + seconds.count(), std::max(held, usage_.peak),
            std::max(swapped, usage_.swapped)};
  const nlohmann::ordered_json json{
      {"seconds", usage_.seconds}, {"peak", usage_.peak}, {"swapped", usage_.swapped}};
  write_whole_file(files_.usage, json.dump());
  show(usage_.seconds, held);
}

void RunWatcher::show(double seconds, int64_t held) {
  const size_t done = logged_steps(files_.log).size();
  if (std::exchange(shown_steps_, done) == done) return;
  const double each = seconds / static_cast<double>(done);
  const double left = each * static_cast<double>(steps_) - seconds;
  std::fprintf(stderr, "%s: step %zu of %lld, %.0f min, about %.0f min left, %.1f GiB\n",
               name_.c_str(), done, static_cast<long long>(steps_), seconds / 60, left / 60,
               static_cast<double>(held) / (1 << 30));
}

}  // namespace fsdp
