#include <base/mapping.h>
#include <base/memory_file.h>
#include <base/whole_file.h>
#include <command_line/child.h>
#include <fcntl.h>
#include <reproduce/last_line.h>
#include <reproduce/long_run.h>
#include <reproduce/run_watcher.h>
#include <state/checkpoint_folder.h>
#include <sys/file.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

int64_t bytes_in(const fs::path& folder) {
  int64_t bytes = 0;
  if (!fs::is_directory(folder)) return bytes;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

// Throws std::runtime_error unless the disk of `folder` has room for two checkpoints and for the
// optimizer's moments. For a moment there are two checkpoints, because the older one is removed
// only when the newer one is complete. The moments have two thirds of the bytes of a checkpoint.
void require_room(const LongRun& run, const fs::path& folder) {
  const int64_t needed = 2 * run.state_bytes + run.state_bytes / 3 * 2 - bytes_in(folder);
  const auto free = static_cast<int64_t>(fs::space(folder).available);
  if (needed <= free) return;
  throw std::runtime_error(folder.string() + ": needs " + std::to_string(needed / 1'000'000'000) +
                           " GB on the disk, and " + std::to_string(free / 1'000'000'000) +
                           " GB are free; give another --folder");
}

LongResult read(const LongRun& run, const LongRunFiles& files) {
  LongResult all{run.options, parse_train_result(content_of(files.result))};
  all.result.steps = logged_steps(files.log);
  if (static_cast<int64_t>(all.result.steps.size()) != run.steps)
    throw std::runtime_error(files.log.string() + ": has " +
                             std::to_string(all.result.steps.size()) + " of " +
                             std::to_string(run.steps) + " steps; remove the folder");
  const RunUsage usage = read_usage(files);
  all.result.seconds = usage.seconds;
  all.peak = usage.peak;
  all.swapped = usage.swapped;
  if (fs::exists(files.receipt)) all.receipt = files.receipt;
  return all;
}

// Returns the program and the arguments that start the long run from its first step, and not from a
// checkpoint.
std::vector<std::string> command_of(const fs::path& program, const LongRun& run,
                                    const LongRunFiles& files, const fs::path& result) {
  std::vector<std::string> command = run.options;
  command.insert(command.begin(), program);
  command.insert(command.end(), {"--log", files.log, "--json", result, "--checkpoint-dir",
                                 files.checkpoints, "--save-every", "3", "--keep", "1"});
  if (run.receipt_sample > 0)
    command.insert(command.end(), {"--receipt", files.receipt, "--receipt-sample",
                                   std::to_string(run.receipt_sample)});
  if (std::ranges::find(command, "--offload") != command.end())
    command.insert(command.end(), {"--offload-dir", files.folder.parent_path()});
  return command;
}

}  // namespace

LongResult run_or_go_on(const fs::path& program, const fs::path& parent, const LongRun& run) {
  const LongRunFiles files{parent / run.name};
  fs::create_directories(files.folder);
  // This process and its child, the train program, hold a lock on the file `lock` in the run's
  // folder until the run ends.
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

  const fs::path unfinished = files.result.string() + ".part";
  fs::remove(unfinished);  // a failed run may have left its results in this file
  const bool goes_on = !step_folders(files.checkpoints).empty();
  if (!goes_on) fs::remove(files.log);  // without a checkpoint, the run begins again
  std::vector<std::string> command = command_of(program, run, files, unfinished);
  if (goes_on) command.insert(command.end(), {"--resume", files.checkpoints});
  RunWatcher watcher(run.name, run.steps, files);
  if (!run_child(command, files.output, std::ref(watcher)).ok())
    throw std::runtime_error(run.name + ": " + last_line(content_of(files.output)) + " (see " +
                             files.output.string() + "; the same command continues the run)");
  fs::rename(unfinished, files.result);
  fs::remove_all(files.checkpoints);
  return read(run, files);
}

nlohmann::ordered_json to_json(const LongResult& all) {
  nlohmann::ordered_json json{{"options", joined(all.options)},
                              {"seconds", all.result.seconds},
                              {"peak", all.peak},
                              {"swapped", all.swapped}};
  for (const Fields& step : all.result.steps)
    json["steps"].push_back(step.kept());
  json["last"] = all.result.last.kept();
  return json;
}

}  // namespace fsdp
