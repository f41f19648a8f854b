#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <command_line/usage.h>
#include <linux/magic.h>
#include <options/groups.h>
#include <sys/vfs.h>

#include <filesystem>
#include <limits>
#include <string>

namespace fsdp {
namespace {

void add_checkpoint_activations(CLI::App& app, TrainConfig& config) {
  const std::string name = "--checkpoint-activations";
  const auto take = [&config, name](const std::string& text) {
    const bool number = text.starts_with("every:");
    if (!number && text != "none" && text != "all")
      throw UsageError(name + " must be none, all or every:K, not " + text);
    const int64_t every =
        number ? parse_number<int64_t>(name + " every:", text.substr(6), {1, 1000}) : text == "all";
    config.memory.activation_checkpoint_every = static_cast<int>(every);
  };
  app.add_option_function<std::string>(name, take,
                                       "which blocks keep only their input, and recompute their "
                                       "activations in backward: none, all or every K-th one "
                                       "(default none)")
      ->type_name("none|all|every:K");
}

void add_offload_options(CLI::App& app, TrainConfig& config) {
  const std::vector<std::string> what{"none", "optimizer"};
  app.add_option_function<std::string>(
         "--offload", [what](const std::string& text) { index_of_word("--offload", text, what); },
         "optimizer (each rank keeps AdamW's moments, and sums of gradients that wait for other "
         "microbatches, in a file) or none (default none)")
      ->type_name("none|optimizer");
  app.add_option("--offload-dir", config.memory.offload_dir,
                 "folder of the files of --offload, which have no name and end with the run");
  add_number(app, "--offload-resident", config.memory.offload_resident,
             NumberRange<int64_t>{1, std::numeric_limits<int64_t>::max() / 2},
             "with --offload: bytes of each rank's moments that stay in memory (default 0)");
}

// Returns whether the file system of `folder` is in memory (tmpfs or ramfs), not on a disk.
bool is_memory(const std::string& folder) {
  struct statfs system {};
  return statfs(folder.c_str(), &system) == 0 &&
         (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

}  // namespace

void add_memory_options(CLI::App& app, TrainConfig& config) {
  add_checkpoint_activations(app, config);
  add_offload_options(app, config);
}

void check_offload_options(const CLI::App& app, const TrainConfig& config, bool only_plans) {
  const bool offload = app.count("--offload") > 0 && app["--offload"]->as<std::string>() != "none";
  if (!offload) {
    for (const char* option : {"--offload-dir", "--offload-resident"})
      if (app.count(option) > 0)
        throw UsageError(std::string(option) + ": needs --offload optimizer");
    return;
  }
  if (config.memory.offload_dir.empty())
    throw UsageError("--offload optimizer: needs --offload-dir");
  std::error_code unknown;
  if (!only_plans && !std::filesystem::exists(config.memory.offload_dir, unknown) && !unknown)
    throw UsageError("--offload-dir " + config.memory.offload_dir + ": no such folder");
  if (!only_plans)
    check_output("--offload-dir", config.memory.offload_dir,
                 reason_not_to_fill(config.memory.offload_dir));
  if (!only_plans && is_memory(config.memory.offload_dir))
    throw UsageError("--offload-dir " + config.memory.offload_dir +
                     ": is in memory; give a folder on a disk");
  if (config.optimizer.kind == OptimizerOptions::Kind::sgd)
    throw UsageError("--offload optimizer: sgd has no state; give --optimizer adamw");
  if (config.optimizer.kind == OptimizerOptions::Kind::muon)
    throw UsageError(
        "--offload optimizer: only the state of adamw can lie in files; give "
        "--optimizer adamw");
  if (config.on_cuda()) throw UsageError("--offload optimizer: needs --device cpu");
}

}  // namespace fsdp
