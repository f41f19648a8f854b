#include <base/whole_file.h>
#include <comm/launched.h>
#include <command_line/command_line.h>
#include <diff/run_hashes.h>
#include <options/groups.h>
#include <report/telemetry.h>
#include <trace/timeline.h>
#include <train/going_on.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace fsdp {
namespace {

struct NamedFile {
  std::string option;
  std::string path;
};

// What the run would lose if two of them were one.
std::vector<NamedFile> files_of(const TrainConfig& config) {
  std::vector<NamedFile> files{{"--json", config.json},
                               {"--trace", config.trace},
                               {"--log", config.log},
                               {"--checkpoint-dir", config.checkpoint_dir},
                               {"--resume", config.resume}};
  for (const std::string& path : config.text)
    files.push_back({"--text", path});
  std::erase_if(files, [](const NamedFile& file) { return file.path.empty(); });
  return files;
}

bool is_written(const NamedFile& file) {
  return file.option == "--json" || file.option == "--trace" || file.option == "--log";
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

}  // namespace

void add_output_options(CLI::App& app, TrainConfig& config) {
  app.add_option("--trace", config.trace,
                 "write each rank's timeline: FILE.html, .json (Perfetto) or .txt");
  app.add_option("--json", config.json,
                 "when training ends, write one line per step and a last one to this file");
  app.add_option("--log", config.log,
                 "write a line of JSON at each step to the end of this file, which may be a FIFO "
                 "(docs/telemetry.md)");
  auto* hashes = app.add_option("--hashes", config.hashes,
                                "write a hash of all that each step makes into this folder, as "
                                "./fsdp diff does (docs/debugging.md)");
  app.add_option("--capture", config.capture, "an event of which to write the values there too")
      ->needs(hashes);
  // start() reads the variable. A run that is replayed has the option too.
  app.add_option_function<std::string>(
      "--record",
      [](const std::string& folder) {
        if (std::getenv("FSDP_REPLAY") == nullptr)
          setenv("FSDP_RECORD", std::filesystem::absolute(folder).c_str(), 1);
      },
      "write what each rank receives into a new folder, for ./fsdp replay");
}

void check_output_options(const CLI::App& app, const TrainConfig& config) {
  if (!config.json.empty()) check_output("--json", config.json, reason_not_to_write(config.json));
  if (!config.log.empty()) check_output("--log", config.log, reason_not_to_log(config.log));
  if (!config.trace.empty()) {
    try {
      timeline_writer(config.trace);
    } catch (const std::invalid_argument& error) {
      throw UsageError(std::string("--trace ") + error.what());
    }
    check_output("--trace", config.trace, reason_not_to_write(config.trace));
  }
  if (!config.hashes.empty() && std::filesystem::exists(config.hashes) &&
      !std::filesystem::is_directory(config.hashes))
    throw UsageError("--hashes " + config.hashes + ": is no folder");
  try {
    if (!config.capture.empty()) nlohmann::json::parse(config.capture).get<EventKey>();
  } catch (const std::exception&) {
    throw UsageError("--capture " + config.capture + ": names no event; ./fsdp diff prints one");
  }
  if (app.count("--record") > 0 &&
      (config.on_cuda() || started_rank() || !config.checkpoint_dir.empty()))
    throw UsageError(
        "--record: takes ranks of one process on the CPU, and no --checkpoint-dir, which a replay "
        "would write again");
  check_that_files_differ(files_of(config));
}

void add_lost_host_option(CLI::App& app, TrainConfig& config) {
  app.add_option("--on-lost-host", config.on_lost_host,
                 "with a replica on each host, what the others do when one is lost: end, or "
                 "continue without it, to the same bits (default end)")
      ->check(CLI::IsMember({"end", "continue"}));
}

void check_lost_host_option(const TrainConfig& config) {
  if (config.on_lost_host != "continue") return;
  if (config.shards() == config.world) {
    const auto self = started_rank();
    if (!self || self->rank == 0)
      std::fprintf(stderr, "fsdp train: --on-lost-host has no effect with one replica\n");
    return;
  }
  const std::string option = "--on-lost-host continue: ";
  if (!started_rank())
    throw UsageError(option + "takes ranks that a launcher has started, on several hosts");
  if (config.on_cuda()) throw UsageError(option + "takes --device cpu");
  if (config.step_in_backward)
    throw UsageError(option + "takes a step back, which --step-in-backward on has begun to make");
  const auto kept = with_ranks(config, config.world);
  if (kept && kept->accumulate == config.accumulate) return;
  const Arrangement parts = config.arrangement();
  throw UsageError(option + "fewer ranks would round the sum over " +
                   std::to_string(parts.replicas) + " replicas, " + std::to_string(parts.turns) +
                   " parts on a rank, another way; give --accumulate " +
                   (parts.turns_first ? "each" : "last") + " or other --parts");
}

}  // namespace fsdp
