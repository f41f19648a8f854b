#include <command_line/command_line.h>
#include <linux/magic.h>
#include <options/groups.h>
#include <sys/vfs.h>

#include <filesystem>
#include <limits>

namespace fsdp {
namespace {

// Whether what is written into the folder stays in memory.
bool is_memory(const std::string& folder) {
  struct statfs system {};
  return statfs(folder.c_str(), &system) == 0 &&
         (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

}  // namespace

void add_offload_options(CLI::App& app, TrainConfig& config) {
  app.add_option_function<std::string>(
         "--offload", [](const std::string&) {},
         "optimizer (AdamW's moments lie in a file of each rank, and sums of gradients that wait for "
         "other parts of the batch) or none (default none)")
      ->check(CLI::IsMember({"none", "optimizer"}));
  app.add_option("--offload-dir", config.offload_dir,
                 "folder of these files, which have no name and end with the run");
  add_number(app, "--pinned", config.pinned,
             NumberRange<int64_t>{1, std::numeric_limits<int64_t>::max() / 2},
             "bytes of each rank's moments that stay in memory all the same (default 0)");
}

void check_offload_options(const CLI::App& app, const TrainConfig& config) {
  const bool offload = app.count("--offload") > 0 && app["--offload"]->as<std::string>() != "none";
  if (!offload) {
    for (const char* option : {"--offload-dir", "--pinned"})
      if (app.count(option) > 0)
        throw UsageError(std::string(option) + ": needs --offload optimizer");
    return;
  }
  if (config.offload_dir.empty()) throw UsageError("--offload optimizer: needs --offload-dir");
  if (!std::filesystem::is_directory(config.offload_dir))
    throw UsageError("--offload-dir " + config.offload_dir + ": no such folder");
  if (is_memory(config.offload_dir))
    throw UsageError("--offload-dir " + config.offload_dir +
                     ": lies in memory; give one on a disk");
  if (config.optimizer.kind == OptimizerOptions::Kind::sgd)
    throw UsageError("--offload optimizer: sgd has no state; give --optimizer adamw");
  if (config.on_cuda()) throw UsageError("--offload optimizer: takes --device cpu");
}

}  // namespace fsdp
