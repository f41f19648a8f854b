#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <command_line/config_file.h>
#include <diff/run_hashes.h>
#include <launch/launched.h>
#include <options/groups.h>
#include <receipt/signature.h>
#include <report/log_file.h>
#include <report/telemetry.h>
#include <state/checkpoint_folder.h>
#include <trace/timeline.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <vector>

namespace fsdp {
namespace {

struct NamedFile {
  std::string option;
  std::string path;
};

// Returns the files and folders that the run reads or writes, each with the option that names it.
// No file of results may be the same as another of these files.
std::vector<NamedFile> files_of(const CLI::App& app, const TrainConfig& config) {
  std::vector<NamedFile> files{
      {"--json", config.reports.json},       {"--trace", config.reports.trace},
      {"--profile", config.reports.profile}, {"--log", config.reports.log},
      {"--receipt", config.reports.receipt}, {"--checkpoint-dir", config.checkpoint.dir},
      {"--resume", config.checkpoint.resume}};
  for (const std::string& path : config.data.text)
    files.push_back({"--text", path});
  for (const std::string& path : config.data.tokens)
    files.push_back({"--tokens", path});
  for (const std::string option : {"--config", "--receipt-key"})
    for (const std::string& path : app[option]->results())
      files.push_back({option, path});
  std::erase_if(files, [](const NamedFile& file) { return file.path.empty(); });
  return files;
}

bool is_written(const NamedFile& file) {
  const std::set<std::string> written{"--json", "--trace", "--profile", "--log", "--receipt"};
  return written.contains(file.option);
}

void check_that_files_differ(const std::vector<NamedFile>& files) {
  for (size_t i = 0; i < files.size(); ++i) {
    for (size_t j = i + 1; j < files.size() && is_written(files[i]); ++j) {
      if (!same_file(files[i].path, files[j].path)) continue;
      throw UsageError(files[i].option + " and " + files[j].option + " name one file, " +
                       files[i].path + ": one would replace the other");
    }
  }
}

// Throws UsageError if a file of results would lie in the folder of --init or in a checkpoint,
// where all files belong to the model, or if it is a file in a folder of --text.
void check_that_inputs_stay(const std::vector<NamedFile>& files, const TrainConfig& config) {
  for (const NamedFile& file : files) {
    if (!is_written(file)) continue;
    const auto refuse = [&](const std::string& what) {
      throw UsageError(file.option + ' ' + file.path + ": " + what + "; give another file");
    };
    if (!config.model.init.empty() && lies_below(file.path, config.model.init))
      refuse("lies in " + config.model.init + ", the folder of --init");
    const std::string& resumed = config.checkpoint.resume;
    const std::string saved = resumed.empty() ? "" : checkpoint_in_which_lies(file.path, resumed);
    if (!saved.empty()) refuse("lies in " + saved + ", which is a checkpoint");
    std::error_code unknown;
    for (const std::string& text : config.data.text)
      if (std::filesystem::exists(file.path, unknown) && lies_below(file.path, text))
        refuse("is a file of --text " + text);
  }
}

// Call it for a file of results, `path`, that `option` names. Throws UsageError if the file has
// results that must not be lost:
// - if the file of --config has set `option`, because `path` may have the results of the previous
//   run with this --config;
// - if `goes_on` is true, because `path` may have the first steps of the run that this run
//   continues.
// In other cases the user has named the file on the command line, and the run replaces it.
void keep_results(const CLI::App& app, const std::string& option, const std::string& path,
                  bool goes_on) {
  if (!holds_something(path) || (!goes_on && place_in_config(app, option).empty())) return;
  throw UsageError(option + ' ' + path +
                   ": has the results of a run, which would be replaced; give " + option +
                   " another file");
}

// Throws UsageError if the file of --log can't be written, or if it has something that is not a
// log. Also throws UsageError if the file has the log of some steps and this run does not resume,
// because the steps of two runs must not be mixed.
void check_log(const TrainConfig& config) {
  const std::string name = "--log " + config.reports.log + ": ";
  check_output("--log", config.reports.log, reason_not_to_log(config.reports.log));
  if (!holds_something(config.reports.log)) return;
  const LogEnd end = end_of_log(config.reports.log);
  if (!end.is_log) throw UsageError(name + "is not the log of a run; give another file");
  if (end.last_step && config.checkpoint.resume.empty() && !config.checkpoint.auto_resume)
    throw UsageError(name + "has a run up to step " + std::to_string(*end.last_step + 1) +
                     " already; give another file, or continue that run (--resume)");
}

void check_hashes_folder(const std::string& folder) {
  if (folder.empty()) return;
  const std::string name = "--hashes " + folder;
  std::error_code unknown;
  if (std::filesystem::exists(folder, unknown) && !std::filesystem::is_directory(folder, unknown))
    throw UsageError(name + ": is not a folder");
  check_output("--hashes", folder, reason_not_to_fill(folder));
  if (std::filesystem::exists(folder + "/rank.0", unknown))
    throw UsageError(name + ": has the hashes of a run already; give another folder");
}

void check_record(const CLI::App& app, const TrainConfig& config) {
  if (app.count("--record") == 0) return;
  if (config.on_cuda() || launched_rank() || !config.checkpoint.dir.empty())
    throw UsageError(
        "--record: needs ranks that one process forks, on the CPU, and no --checkpoint-dir, "
        "because a replay would write the checkpoints again");
  const auto folder = app["--record"]->as<std::string>();
  std::error_code unknown;
  if (std::filesystem::exists(folder, unknown))
    throw UsageError("--record " + folder + ": is there already; name a new folder");
  check_output("--record", folder, reason_not_to_fill(folder));
}

void check_receipt(const CLI::App& app, const TrainConfig& config) {
  if (config.reports.receipt.empty()) {
    for (const char* option : {"--receipt-sample", "--receipt-key", "--watch"})
      if (app.count(option) > 0) throw UsageError(std::string(option) + ": needs --receipt");
    return;
  }
  if (config.training.steps == 0) throw UsageError("--receipt: needs a step; --steps is 0");
  if (config.on_cuda())
    throw UsageError("--receipt: needs --device cpu, because an audit computes on a CPU");
  if (config.ranks.on_lost_host == OnLostHost::continue_training)
    throw UsageError(
        "--receipt: is written by the ranks that began the run; leave out --on-lost-host continue");
  if (config.reports.watch > 0 && config.checkpoint.dir.empty())
    throw UsageError(
        "--watch: needs --checkpoint-dir, because it computes the step after a checkpoint again");
}

// Reads the private key that signs the receipt from the file `path`. The key is read before the
// run, so that it can't be lost meanwhile. Returns "" on all ranks but rank 0 under a launcher,
// because only rank 0 signs.
std::string signing_key(const std::string& path) {
  const auto self = launched_rank();
  if (self && self->rank != 0) return "";
  return naming_option("--receipt-key", [&] { return private_key_in(path); });
}

void check_only_microbatch(const TrainConfig& config) {
  const auto& index = config.training.only_microbatch;
  if (!index) return;
  const std::string name = "--only-microbatch " + std::to_string(*index) + ": ";
  if (config.ranks.mode != Mode::single || config.reports.hashes.empty())
    throw UsageError(name + "needs --mode single and --hashes");
  if (config.training.steps == 0) throw UsageError(name + "needs a step; --steps is 0");
  if (*index >= config.training.microbatches)
    throw UsageError(name + "there are " + std::to_string(config.training.microbatches) +
                     " microbatches, 0 to " + std::to_string(config.training.microbatches - 1) +
                     " (--microbatches)");
}

void check_capture(const std::string& capture) {
  if (capture.empty()) return;
  try {
    nlohmann::json::parse(capture).get<EventKey>();
  } catch (const std::exception&) {
    throw UsageError("--capture " + capture +
                     ": is not an event; ./fsdp diff prints events in the right form");
  }
}

}  // namespace

void add_reports_options(CLI::App& app, TrainConfig& config) {
  app.add_option(
      "--trace", config.reports.trace,
      "write the timelines of all ranks to FILE.html, FILE.json (for Perfetto) or FILE.txt");
  app.add_option(
      "--profile", config.reports.profile,
      "write what PyTorch's profiler records of the last two steps on rank 0 to FILE.json, "
      "for Perfetto");
  app.add_option("--json", config.reports.json,
                 "when training ends, write a line of JSON for each step and a last line with the "
                 "results to this file");
  // --log-file is a second name of --log, because torchrun takes --log for an abbreviation of one
  // of its own options.
  app.add_option("--log,--log-file", config.reports.log,
                 "after each step, add a line of JSON to the end of this file, which may be a FIFO "
                 "(docs/telemetry.md); under torchrun, write --log-file");
  add_number(app, "--log-every", config.reports.log_every, NumberRange<int64_t>{1, kMany},
             "print and log a line only after each step whose number is a multiple of this, after "
             "the first and the last step, and in the log after each evaluation (default 1)");
  auto* hashes =
      app.add_option("--hashes", config.reports.hashes,
                     "write a hash of each tensor that a step makes into this folder, as "
                     "./fsdp diff does (docs/debugging.md)");
  app.add_option("--capture", config.reports.captured_event,
                 "with --hashes: an event, as ./fsdp diff prints it, whose values are written too")
      ->needs(hashes);
  add_number(
      app, "--only-microbatch", config.training.only_microbatch,
      NumberRange<int64_t>{0, kMaxMicrobatches - 1},
      "with --mode single and --hashes: compute only this microbatch of the first step, from "
      "0 on, and end without an update");
  app.add_option("--receipt", config.reports.receipt,
                 "write the hashes of a sample of what the steps compute to this file, for ./fsdp "
                 "audit (docs/receipts.md)")
      ->excludes(hashes);
  add_number(app, "--receipt-sample", config.reports.receipt_sample, NumberRange<int64_t>{1, kMany},
             "with --receipt: hash one in so many tensors; 1: all (default 8)");
  app.add_option_function<std::string>(
      "--receipt-key",
      [&config](const std::string& path) { config.reports.receipt_key = signing_key(path); },
      "with --receipt: sign it with this private key, a PEM file (docs/receipts.md)");
  add_number(
      app, "--watch", config.reports.watch, NumberRange<int64_t>{1, kMany},
      "with --receipt and --checkpoint-dir: while the run trains, compute up to so many drawn "
      "microbatches a minute again in one process, and end the run if one differs");
  // Passes the folder of --record to start(), which starts the ranks and reads FSDP_RECORD
  // (comm/recording.h). A run that ./fsdp replay repeats has the option --record too, but must not
  // record again.
  app.add_option_function<std::string>(
      "--record",
      [](const std::string& folder) {
        if (std::getenv("FSDP_REPLAY") == nullptr)
          setenv("FSDP_RECORD", std::filesystem::absolute(folder).c_str(), 1);
      },
      "write what each rank receives into this new folder, for ./fsdp replay");
  app.add_flag("--dry-run", config.reports.dry_run,
               "check the options, files and folders, print what the run needs, and train nothing");
  app.add_flag("--print-units", config.reports.print_units,
               "print the units that --mode fsdp makes on --world ranks, and train nothing");
  app.add_flag("--print-settings", config.reports.print_settings,
               "check all options and files, print the settings on which the numbers of the run "
               "depend as one line of JSON, and train nothing");
}

void check_reports_options(const CLI::App& app, const TrainConfig& config) {
  check_capture(config.reports.captured_event);
  if (!config.reports.trace.empty()) {
    try {
      timeline_writer(config.reports.trace);
    } catch (const std::invalid_argument& error) {
      throw UsageError(std::string("--trace ") + error.what());
    }
  }
  const auto self = launched_rank();
  // A rank that ./fsdp replay runs again writes no files of results, so they need no check.
  if (std::getenv("FSDP_REPLAY") != nullptr) return;
  check_record(app, config);
  check_receipt(app, config);
  check_only_microbatch(config);
  check_hashes_folder(config.reports.hashes);
  // Under a launcher, only rank 0 writes the log and the files of --json, --trace, --profile and
  // --receipt, so the other ranks don't check them.
  if (self && self->rank != 0) return;
  const std::vector<NamedFile> files = files_of(app, config);
  check_that_files_differ(files);
  check_that_inputs_stay(files, config);
  if (!config.reports.log.empty()) check_log(config);
  for (const auto& [option, path] :
       {std::pair<std::string, std::string>("--json", config.reports.json),
        {"--trace", config.reports.trace},
        {"--profile", config.reports.profile},
        {"--receipt", config.reports.receipt}}) {
    if (path.empty()) continue;
    check_output(option, path, reason_not_to_write(path));
    const bool goes_on = config.checkpoint.first_step > 0 &&
                         (path == config.reports.json || path == config.reports.receipt);
    keep_results(app, option, path, goes_on);
  }
}

}  // namespace fsdp
