#include <reproduce/report.h>
#include <reproduce/strict.h>
#include <reproduce/tables.h>
#include <shared/command_line.h>
#include <shared/commit.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

namespace {

struct Settings {
  std::string only;
  std::string train;
  std::string out;
};

std::string beside_this_program(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename(name).string();
}

Settings parse(int argc, char** argv) {
  Settings settings{"", beside_this_program("reference_train"), fsdp::source_root() + "/writeup"};
  CLI::App app("Prints our tables beside the published ones; fails if a line is not ok.",
               "fsdp reproduce");
  app.add_option("--only", settings.only,
                 "one part: strict, small, memory, traffic, matrix or arrangements (default: all "
                 "but the last two)")
      ->check(CLI::IsMember({"strict", "small", "memory", "traffic", "matrix", "arrangements"}));
  app.add_option("--train", settings.train, "the train program to run")->check(CLI::ExistingFile);
  app.add_option("--out", settings.out, "folder of the report (default: writeup)");
  fsdp::parse_command_line(app, argc, argv, [&] {
    if (access(settings.train.c_str(), X_OK) == 0) return;
    throw fsdp::UsageError("--train " + settings.train + ": not a program");
  });
  return settings;
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
  report.write(settings.out, name, runs);
  std::printf("%s: written to %s/%s.md and .json\n", report.ok() ? "all ok" : "NOT OK",
              settings.out.c_str(), name.c_str());
  return report.ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return fsdp::run_program("fsdp reproduce", [&] { return reproduce(parse(argc, argv)); });
}
