#include <base/plain_error.h>
#include <base/text.h>
#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <command_line/usage.h>
#include <launch/launched.h>
#include <options/groups.h>
#include <state/folder_kind.h>
#include <train/checkpoints.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace fsdp {
namespace {

// Returns the --steps of the run that saved the checkpoint; nothing if an older version of the
// program, which did not store --steps, saved it.
std::optional<int64_t> steps_of(const Checkpoint& saved) {
  return naming_option("--resume", [&] { return saved.number_in_run("/steps"); });
}

// Returns the end of an error message for a run whose settings differ from those of the run that
// saved the checkpoint: it names the file run.toml beside the checkpoint, which has the options of
// that run. Returns "" if the file does not exist, because another program saved the checkpoint or
// because the checkpoint was moved.
std::string options_of_run(const Checkpoint& saved) {
  const auto file = std::filesystem::path(saved.folder).parent_path() / "run.toml";
  std::error_code unknown;
  if (!std::filesystem::exists(file, unknown)) return "";
  return "; --config " + file.string() + " gives the options of the saved run";
}

bool lies_in(const std::string& path, const std::string& folder) {
  std::error_code unknown;
  const auto whole = std::filesystem::canonical(path, unknown);
  return !unknown && std::filesystem::equivalent(whole.parent_path(), folder, unknown);
}

// Throws UsageError if --save-async is given and another option contradicts it.
void check_save_async(const TrainConfig& config) {
  if (!config.checkpoint.async) return;
  if (!config.memory.offload_dir.empty())
    throw UsageError(
        "--save-async: would copy into memory what --offload optimizer keeps out of it; leave out "
        "one of the two");
  if (config.ranks.flops > 0)
    throw UsageError(
        "--save-async: lets the speed of the disk decide on collectives, and --flops counts their "
        "time; leave out one of the two");
}

}  // namespace

Checkpoint checkpoint_of_option(const std::string& option, const std::string& path) {
  return naming_option(option, [&] { return find_checkpoint(path); });
}

void add_checkpoint_options(CLI::App& app, TrainConfig& config) {
  app.add_option(
      "--checkpoint-dir", config.checkpoint.dir,
      "folder in which checkpoints are saved (docs/checkpoints.md) (default: none is saved)");
  add_number(app, "--save-every", config.checkpoint.save_every, NumberRange<int64_t>{1, kMany},
             "steps between checkpoints (default 1); the last step is always saved");
  add_number(
      app, "--keep", config.checkpoint.keep, NumberRange<int64_t>{1, kMany},
      "number of checkpoints to keep, the latest; older ones are removed (default: all are kept)");
  const std::vector<std::pair<std::string, CheckpointFormat>> formats{
      {"sharded", CheckpointFormat::sharded}, {"full", CheckpointFormat::full}};
  add_choice(app, "--checkpoint-format", config.checkpoint.format, formats,
             "sharded (each rank writes what it owns) or full (one file of whole parameters and "
             "one of the optimizer's state) (default sharded)");
  app.add_flag("--save-async", config.checkpoint.async,
               "write checkpoints while training continues, from a copy of the state in memory; "
               "the next save waits for the one before (default: training waits)");
  app.add_option(
      "--resume", config.checkpoint.resume,
      "continue from a checkpoint, or from the latest one in a folder, up to --steps; auto: "
      "from the latest one in --checkpoint-dir or, if there is none, from the start");
  for (const char* name : {"--checkpoint", "--output", "--output-dir"})
    add_advice(app, name,
               "--checkpoint-dir FOLDER saves checkpoints, and --resume FOLDER continues from one");
}

void find_checkpoint_to_resume(TrainConfig& config, std::optional<int64_t>& microbatches) {
  if (config.checkpoint.resume == "auto") {
    if (config.checkpoint.dir.empty()) throw UsageError("--resume auto: needs --checkpoint-dir");
    config.checkpoint.resume = latest_step(config.checkpoint.dir) ? config.checkpoint.dir : "";
    config.checkpoint.auto_resume = true;
  }
  if (config.checkpoint.resume.empty()) return;
  const Checkpoint checkpoint = checkpoint_of_option("--resume", config.checkpoint.resume);
  const std::string name = "--resume " + checkpoint.folder + ": ";
  std::optional<int64_t> saved_parts;
  try {
    go_on_from(checkpoint, config);
    saved_parts = checkpoint.number_in_run("/parts");
  } catch (const std::invalid_argument& error) {
    throw UsageError(name + plain_text(error));
  } catch (const std::exception& error) {
    throw UsageError("--resume " + plain_text(error));
  }
  if (microbatches || !saved_parts) return;
  if (*saved_parts < 1 || *saved_parts > kMaxMicrobatches)
    throw UsageError(name + "has " + std::to_string(*saved_parts) + " microbatches");
  microbatches = saved_parts;
  if (*microbatches % config.ranks.world != 0 && !launched_rank()) {
    throw UsageError(
        "--world " + std::to_string(config.ranks.world) + ": the checkpoint has " +
        std::to_string(*microbatches) +
        " microbatches (--microbatches), the same number for each rank; " +
        "use a number of ranks that divides this number, or give other --microbatches");
  }
}

void check_checkpoint_options(const CLI::App& app, const TrainConfig& config) {
  check_save_async(config);
  if (config.checkpoint.dir.empty()) {
    for (const char* option : {"--save-every", "--keep", "--checkpoint-format", "--save-async"})
      if (app.count(option) > 0) throw UsageError(std::string(option) + ": needs --checkpoint-dir");
  } else if (const auto latest = latest_step(config.checkpoint.dir);
             latest && *latest > config.checkpoint.first_step) {
    throw UsageError("--checkpoint-dir " + config.checkpoint.dir + ": has step " +
                     std::to_string(*latest) + " already; continue from it (--resume " +
                     config.checkpoint.dir + "), or give another folder");
  } else if (latest && !lies_in(config.checkpoint.resume, config.checkpoint.dir)) {
    throw UsageError("--checkpoint-dir " + config.checkpoint.dir + ": has step " +
                     std::to_string(*latest) +
                     " of another run than --resume; give another folder");
  }
  if (kind_of_folder(config.checkpoint.dir) == FolderKind::hugging_face)
    throw UsageError("--checkpoint-dir " + config.checkpoint.dir +
                     ": is a Hugging Face folder, which the checkpoints would hide from --init; "
                     "give another folder");
  if (!config.checkpoint.dir.empty())
    check_output("--checkpoint-dir", config.checkpoint.dir,
                 reason_not_to_fill(config.checkpoint.dir));
  if (config.checkpoint.resume.empty()) return;
  if (config.checkpoint.auto_resume && config.training.steps == config.checkpoint.first_step) {
    const auto self = launched_rank();
    if (!self || self->rank == 0)
      std::printf("%s has all %lld steps\n", config.checkpoint.dir.c_str(),
                  static_cast<long long>(config.training.steps));
    std::exit(0);
  }
  if (config.training.steps <= config.checkpoint.first_step)
    throw UsageError("--steps " + std::to_string(config.training.steps) + ": the checkpoint has " +
                     std::to_string(config.checkpoint.first_step) +
                     " of them already; give a larger number");
  const auto own = settings_of_run(config);
  const Checkpoint saved = checkpoint_of_option("--resume", config.checkpoint.resume);
  const std::string difference = one_line(difference_of_runs(saved.run, own));
  if (!difference.empty())
    throw UsageError("--resume " + config.checkpoint.resume + ": was trained with " + difference +
                     options_of_run(saved));
  const auto self = launched_rank();
  const std::string change =
      change_of_rate(config, steps_of(saved).value_or(config.training.steps));
  if (!change.empty() && (!self || self->rank == 0))
    std::fprintf(stderr, "fsdp train: %s\n", change.c_str());
  const int64_t microbatches = saved.number_in_run("/parts").value_or(0);
  if (microbatches != own.at("parts")) {
    std::fprintf(
        stderr,
        "fsdp train: --microbatches is %lld here, and %lld in the checkpoint: from here on, sums "
        "are rounded differently\n",
        own.at("parts").get<long long>(), static_cast<long long>(microbatches));
  }
}

}  // namespace fsdp
