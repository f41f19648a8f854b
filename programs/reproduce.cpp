#include <command_line/command_line.h>
#include <command_line/commit.h>
#include <reproduce/full.h>
#include <reproduce/report.h>
#include <reproduce/strict.h>
#include <reproduce/tables.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

namespace {

struct Settings {
  std::string only;
  std::string train;
  std::string out;
  bool full{};
  std::string folder{fsdp::source_root() + "/build/full"}, device{"cpu"};
  int64_t world{8};
};

std::string beside_this_program(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename(name).string();
}

Settings parse(int argc, char** argv) {
  Settings settings;
  settings.train = beside_this_program("reference_train");
  settings.out = fsdp::source_root() + "/writeup";
  CLI::App app("Prints our tables beside the published ones; fails if a line is not ok.",
               "fsdp reproduce");
  app.add_option("--only", settings.only,
                 "one part: strict, small, memory, traffic, matrix or arrangements (default: all "
                 "but the last two)")
      ->check(CLI::IsMember({"strict", "small", "memory", "traffic", "matrix", "arrangements"}));
  app.add_option("--train", settings.train, "the train program to run")->check(CLI::ExistingFile);
  app.add_option("--out", settings.out, "folder of the report (default: writeup)");
  app.add_flag("--full", settings.full,
               "GPT-2 XL instead, on the CPU in about two hours, 20 GiB of memory and 70 "
               "GB on the disk; goes on where it was interrupted")
      ->excludes("--only");
  app.add_option("--folder", settings.folder,
                 "of --full: where state, checkpoints and results lie (default: build/full)");
  app.add_option("--device", settings.device, "of --full: cpu or cuda (default cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  fsdp::add_number(app, "--world", settings.world, fsdp::NumberRange<int64_t>{1, 64},
                   "of --full: FSDP's ranks (default 8)");
  fsdp::parse_command_line(app, argc, argv, [&] {
    for (const char* option : {"--folder", "--device", "--world"})
      if (app.count(option) > 0 && !settings.full)
        throw fsdp::UsageError(std::string(option) + ": needs --full");
    if (8 % settings.world != 0)
      throw fsdp::UsageError("--world " + std::to_string(settings.world) +
                             ": the batch of 8 rows can't be cut into so many equal parts");
    if (access(settings.train.c_str(), X_OK) == 0) return;
    throw fsdp::UsageError("--train " + settings.train + ": not a program");
  });
  return settings;
}

int finish(const fsdp::Report& report, const std::string& folder, const std::string& name,
           const nlohmann::ordered_json& runs) {
  report.write(folder, name, runs);
  std::printf("%s: written to %s/%s.md and .json\n", report.ok() ? "all ok" : "NOT OK",
              folder.c_str(), name.c_str());
  return report.ok() ? 0 : 1;
}

int reproduce(const Settings& settings) {
  fsdp::TrainRuns runs(settings.train);
  const fsdp::Train train = [&](const auto& options) -> const auto& {
    return runs(options);
  };
  const auto wanted = [&](const std::string& part) {
    const bool long_one = part == "matrix" || part == "arrangements";
    return settings.only.empty() ? !long_one : settings.only == part;
  };
  fsdp::Report report{"./fsdp reproduce", {}};
  if (!settings.only.empty()) report.command += " --only " + settings.only;
  const auto add = [&](fsdp::Table table) {
    std::printf("%s\n", table.markdown().c_str());
    std::fflush(stdout);
    report.tables.push_back(std::move(table));
  };
  if (wanted("strict")) add(fsdp::strict_table(runs.folder()));
  if (wanted("small")) add(fsdp::equivalence_table(train));
  if (wanted("memory")) {
    for (auto& table : fsdp::memory_tables(train))
      add(std::move(table));
  }
  if (wanted("traffic")) add(fsdp::traffic_table(train));
  if (wanted("matrix")) add(fsdp::matrix_table(train));
  if (wanted("arrangements")) add(fsdp::arrangements_table(train));

  // A part does not take the place of the whole.
  const std::string name = settings.only.empty() ? "reproduce" : "reproduce-" + settings.only;
  return finish(report, settings.out, name, runs.json());
}

int reproduce_full(const Settings& settings) {
  const fsdp::FullSettings of_runs{settings.train, settings.folder, settings.device == "cuda",
                                   static_cast<int>(settings.world)};
  const fsdp::Full full = fsdp::run_full(of_runs);
  const fsdp::Report report{"./fsdp reproduce --full", fsdp::full_tables(of_runs, full)};
  for (const auto& table : report.tables)
    std::printf("%s\n", table.markdown().c_str());
  return finish(report, settings.out, "reproduce-full", fsdp::to_json(full));
}

}  // namespace

int main(int argc, char** argv) {
  return fsdp::run_program("fsdp reproduce", [&] {
    const Settings settings = parse(argc, argv);
    return settings.full ? reproduce_full(settings) : reproduce(settings);
  });
}
