#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <command_line/commit.h>
#include <command_line/usage.h>
#include <reproduce/settings.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>

namespace fsdp {
namespace {

std::string default_out() {
  return source_root() + "/build/reproduce";
}

std::string tracked_results() {
  return source_root() + "/writeup";
}

std::string beside_this_program(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename(name).string();
}

std::vector<std::string> names_with_tables(const std::vector<Row>& rows) {
  std::vector<std::string> names;
  for (const Row& row : rows)
    if (row.has_tables()) names.push_back(row.name);
  return names;
}

std::vector<std::string> names_with_receipts(const std::vector<Row>& rows) {
  std::vector<std::string> names;
  for (const Row& row : rows)
    if (row.has_receipts()) names.push_back(row.name);
  return names;
}

void add_selection(CLI::App& app, ReproduceSettings& settings, const std::vector<Row>& rows) {
  app.add_flag("--list", settings.list,
               "print the " + std::to_string(rows.size()) +
                   " rows: number, name, document and place, kind, minutes on two cores, "
                   "last verdict, and the command that shows them");
  auto* only = app.add_option("--only", settings.only,
                              "rows by their names in --list, as in small,memory (default: strict, "
                              "small, memory and traffic)")
                   ->delimiter(',')
                   ->type_name("NAME")
                   ->check(one_of("--only", names_with_tables(rows)));
  auto* all = app.add_flag("--all", settings.all, "all rows that take minutes; about an hour")
                  ->excludes(only);
  app.add_flag("--long", settings.by_hand, "the rows that take an hour: gpt2xl and duke-loss")
      ->excludes(only)
      ->excludes(all);
  app.add_option("--audit", settings.audit,
                 "run nothing: compute a drawn microbatch of each receipt that the row's runs have "
                 "left again, and compare")
      ->type_name("NAME")
      ->check(one_of("--audit", names_with_receipts(rows)))
      ->excludes(only)
      ->excludes(all)
      ->excludes("--list")
      ->excludes("--long");
  app.add_option("--train", settings.run.train, "the train program to run");
  auto* out =
      app.add_option("--out", settings.out, "folder of the results (default: build/reproduce)");
  app.add_flag("--write", settings.write,
               "write the results to writeup/, which git tracks, and so renew the last results "
               "that the pages show")
      ->excludes(out);
  app.add_flag("--full", settings.full,
               "--only gpt2xl: on the CPU in about two hours, 20 GiB of memory and 70 GB on the "
               "disk; continues an interrupted run")
      ->excludes(only)
      ->excludes(all);
}

void add_options_of_full(CLI::App& app, FullSettings& full) {
  app.add_option(
      "--folder", full.folder,
      "with --full or --long: folder for state, checkpoints and results (default: build/full)");
  add_choice(app, "--device", full.device, {"cpu", "cuda"},
             "with --full or --long: cpu or cuda (default cpu)");
  add_number(app, "--world", full.world, NumberRange<int64_t>{1, 64},
             "with --full or --long: number of FSDP's ranks (default 8)");
}

// Throws UsageError if the options contradict one another, or if a file or folder that they name
// cannot be used.
void check(const CLI::App& app, const ReproduceSettings& settings) {
  const bool is_long = settings.full || settings.by_hand;
  for (const char* option : {"--folder", "--device", "--world"})
    if (app.count(option) > 0 && !is_long)
      throw UsageError(std::string(option) + ": needs --full or --long");
  if (!settings.audit.empty() && (settings.write || settings.full))
    throw UsageError("--audit: runs nothing, so it excludes --write and --full");
  if (settings.write && settings.list) throw UsageError("--write: --list writes nothing");
  for (const auto& [option, folder, is_used] :
       {std::tuple(settings.write ? "--write" : "--out", settings.out,
                   !settings.list && settings.audit.empty()),
        std::tuple("--folder", settings.run.folder, is_long)})
    if (is_used) check_output(option, folder, reason_not_to_fill(folder));
  if (8 % settings.run.world != 0)
    throw UsageError("--world " + std::to_string(settings.run.world) +
                     ": the batch of 8 rows can't be divided equally among so many ranks");
  if (access(settings.run.train.c_str(), X_OK) == 0) return;
  throw UsageError("--train " + settings.run.train + ": is not a program that can be run");
}

}  // namespace

bool ReproduceSettings::wants(const Row& row) const {
  if (full) return row.name == "gpt2xl";
  if (by_hand) return row.when == "long";
  if (!only.empty()) return std::ranges::count(only, row.name) > 0;
  return row.when == "default" || (all && row.when == "all");
}

std::vector<std::filesystem::path> ReproduceSettings::verdict_folders() const {
  if (out != default_out()) return {out};
  return {out, tracked_results()};
}

ReproduceSettings parse_reproduce(const std::vector<std::string>& arguments,
                                  const std::vector<Row>& rows) {
  ReproduceSettings settings;
  settings.out = default_out();
  settings.run.train = beside_this_program("reference_train");
  settings.run.folder = source_root() + "/build/full";
  CLI::App app("Prints our tables beside the published ones; fails if a line is not ok.",
               "fsdp reproduce");
  add_selection(app, settings, rows);
  add_options_of_full(app, settings.run);
  parse_command_line(app, arguments, [&] {
    if (settings.write) settings.out = tracked_results();
    check(app, settings);
  });
  return settings;
}

}  // namespace fsdp
