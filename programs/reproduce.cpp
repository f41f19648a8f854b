#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <command_line/commit.h>
#include <command_line/usage.h>
#include <reproduce/full.h>
#include <reproduce/registry.h>
#include <reproduce/report.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <tuple>

namespace {

std::string beside_this_program(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename(name).string();
}

struct Settings {
  std::vector<std::string> only;
  std::string out{fsdp::source_root() + "/writeup"};
  bool list{}, all{}, by_hand{}, full{};
  fsdp::FullSettings run{beside_this_program("reference_train"),
                         fsdp::source_root() + "/build/full"};
};

Settings parse(int argc, char** argv) {
  Settings settings;
  CLI::App app("Prints our tables beside the published ones; fails if a line is not ok.",
               "fsdp reproduce");
  std::vector<std::string> names;
  for (const auto& row : fsdp::registry({}))
    if (row.make) names.push_back(row.name);
  app.add_flag("--list", settings.list,
               "print the 35 rows: number, name, document and place, kind, minutes on two cores, "
               "last verdict, and the command that shows them");
  auto* only = app.add_option("--only", settings.only,
                              "rows by their names in --list, as in small,memory (default: strict, "
                              "small, memory and traffic)")
                   ->delimiter(',')
                   ->type_name("NAME")
                   ->check(fsdp::one_of("--only", names));
  auto* all = app.add_flag("--all", settings.all, "all rows that take minutes; about an hour")
                  ->excludes(only);
  app.add_flag("--long", settings.by_hand, "the rows that take an hour: gpt2xl and duke-loss")
      ->excludes(only)
      ->excludes(all);
  app.add_option("--train", settings.run.train, "the train program to run");
  app.add_option("--out", settings.out, "folder of the results (default: writeup)");
  app.add_flag("--full", settings.full,
               "--only gpt2xl: on the CPU in about two hours, 20 GiB of memory and 70 GB on the "
               "disk; goes on where it was interrupted")
      ->excludes(only)
      ->excludes(all);
  app.add_option("--folder", settings.run.folder,
                 "of --full: where state, checkpoints and results lie (default: build/full)");
  fsdp::add_choice(app, "--device", settings.run.device, {"cpu", "cuda"},
                   "of --full: cpu or cuda (default cpu)");
  fsdp::add_number(app, "--world", settings.run.world, fsdp::NumberRange<int64_t>{1, 64},
                   "of --full: FSDP's ranks (default 8)");
  fsdp::parse_command_line(app, {argv + 1, argv + argc}, [&] {
    for (const char* option : {"--folder", "--device", "--world"})
      if (app.count(option) > 0 && !settings.full && !settings.by_hand)
        throw fsdp::UsageError(std::string(option) + ": needs --full or --long");
    for (const auto& [option, folder, is_used] :
         {std::tuple("--out", settings.out, !settings.list),
          std::tuple("--folder", settings.run.folder, settings.full || settings.by_hand)})
      if (is_used) fsdp::check_output(option, folder, fsdp::reason_not_to_fill(folder));
    if (8 % settings.run.world != 0)
      throw fsdp::UsageError("--world " + std::to_string(settings.run.world) +
                             ": the batch of 8 rows can't be cut into so many equal parts");
    if (access(settings.run.train.c_str(), X_OK) == 0) return;
    throw fsdp::UsageError("--train " + settings.run.train + ": not a program");
  });
  return settings;
}

bool wanted(const Settings& settings, const fsdp::Row& row) {
  if (settings.full) return row.name == "gpt2xl";
  if (settings.by_hand) return row.set == "long";
  if (!settings.only.empty()) return std::ranges::count(settings.only, row.name) > 0;
  return row.set == "usual" || (settings.all && row.set == "all");
}

// Makes the tables of a row, prints and writes them. Returns the verdict.
std::string show(const fsdp::Row& row, fsdp::TrainRuns& runs, const std::string& folder) {
  const fsdp::Report report{row.name, row.command, row.make(runs)};
  std::printf("%s", report.markdown().c_str());
  std::fflush(stdout);
  report.write(folder, runs.take_json());
  return report.verdict();
}

int reproduce(const Settings& settings) {
  const auto rows = fsdp::registry(settings.run);
  if (settings.list) {
    std::printf("%s", fsdp::list(rows, settings.out).c_str());
    return 0;
  }
  fsdp::TrainRuns runs(settings.run.train);
  std::map<std::string, std::string> by_verdict;
  for (const auto& row : rows)
    if (wanted(settings, row)) by_verdict[show(row, runs, settings.out)] += " " + row.name;
  for (const auto& [verdict, names] : by_verdict)
    std::printf("%s:%s\n", verdict.c_str(), names.c_str());
  const bool ok = !by_verdict.contains("NOT OK");
  std::printf("%s: written to %s\n", ok ? "all ok" : "NOT OK", settings.out.c_str());
  return ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return fsdp::run_program("fsdp reproduce", [&] { return reproduce(parse(argc, argv)); });
}
