#include <reproduce/report.h>
#include <reproduce/strict.h>
#include <reproduce/tables.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

namespace {

struct Settings {
  std::string only;
  std::string train;
  std::string out;
};

std::string beside_this_program(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename(name).string();
}

// Exits when the command line asks for help or can't be carried out.
Settings parse(int argc, char** argv) {
  const char* root = std::getenv("FSDP_ROOT");
  Settings settings{"", beside_this_program("reference_train"),
                    (root != nullptr ? std::string(root) + "/" : "") + "writeup"};
  CLI::App app("Prints the published tables beside ours; fails when a line is not ok.",
               "fsdp reproduce");
  app.add_option("--only", settings.only,
                 "one part: strict, small, memory, traffic or matrix (default: all but matrix)")
      ->check(CLI::IsMember({"strict", "small", "memory", "traffic", "matrix"}));
  app.add_option("--train", settings.train, "the train program to run")->check(CLI::ExistingFile);
  app.add_option("--out", settings.out, "folder of the report (default: writeup)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    std::exit(app.exit(help));
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "fsdp reproduce: %s\n", error.what());
    std::exit(2);
  }
  if (access(settings.train.c_str(), X_OK) != 0) {
    std::fprintf(stderr, "fsdp reproduce: --train %s: not a program\n", settings.train.c_str());
    std::exit(2);
  }
  return settings;
}

int reproduce(const Settings& settings) {
  fsdp::TrainRuns runs(settings.train);
  const fsdp::Train train = [&](const auto& options) -> const auto& {
    return runs(options);
  };
  const auto wanted = [&](const std::string& part) {
    return settings.only.empty() ? part != "matrix" : settings.only == part;
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

  // A part does not take the place of the whole.
  const std::string name = settings.only.empty() ? "reproduce" : "reproduce-" + settings.only;
  report.write(settings.out, name, runs);
  std::printf("%s: written to %s/%s.md and .json\n", report.ok() ? "all ok" : "NOT OK",
              settings.out.c_str(), name.c_str());
  return report.ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  try {
    return reproduce(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fsdp reproduce: %s\n", error.what());
    return 1;
  }
}
