#include <check/score.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

namespace fsdp {
namespace {

struct Settings {
  std::string what;  // "", "3" or "3.2"
  std::string base{"reference"};
  bool solutions{};
  int repeat{1};
  std::vector<int> worlds;  // empty: all
  std::vector<int> broken;  // tasks that do not compile
  std::string bin;

  // The program of a task's tests.
  std::string program(const Task& task) const {
    const std::string stack = solutions        ? "reference"
                              : base == "mine" ? "mine"
                                               : "mine_on_reference";
    return bin + "/" + stack + "_task" + std::to_string(task.number) + "_tests";
  }

  bool wants(const Task& task) const {
    return what.empty() || what.substr(0, 1) == std::to_string(task.number);
  }
  bool wants(const Problem& problem) const { return what.size() <= 1 || what == problem.number; }

  // GoogleTest's filter for the tests of `task` that are wanted.
  std::string filter(const Task& task) const {
    std::string filter;
    for (const Problem& problem : task.problems) {
      if (!wants(problem)) continue;
      for (const std::string& suite : problem.suites)
        filter += (filter.empty() ? "" : ":") + suite + ".*";
    }
    for (int world = 1; world <= 8 && !worlds.empty(); ++world) {
      const bool wanted = std::find(worlds.begin(), worlds.end(), world) != worlds.end();
      if (!wanted) {
        filter += (filter.find('-') == std::string::npos ? "-*/W" : ":*/W") + std::to_string(world);
      }
    }
    return filter;
  }
};

Settings parse(int argc, char** argv) {
  Settings settings;
  settings.bin = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  CLI::App app("Runs the tests of the tasks and says how far they are.", "fsdp check");
  app.add_option("what", settings.what, "a task (3) or a problem (3.2); all if left out");
  app.add_option("--base", settings.base, "what a task stands on: reference, or mine, your own")
      ->check(CLI::IsMember({"reference", "mine"}));
  app.add_flag("--solutions", settings.solutions, "the reference solutions instead of tasks/");
  app.add_option("--repeat", settings.repeat, "run every test that often (default 1)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--world", settings.worlds, "numbers of ranks, 1,2,3,4 or some of them")
      ->delimiter(',')
      ->check(CLI::Range(1, 8));
  app.add_option("--broken", settings.broken, "tasks that do not compile")
      ->delimiter(',')
      ->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    std::exit(app.exit(help));
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "fsdp check: %s\n", error.what());
    std::exit(2);
  }
  for (const Task& task : course()) {
    for (const Problem& problem : task.problems) {
      if (settings.wants(task) && settings.wants(problem)) return settings;
    }
  }
  std::fprintf(stderr, "fsdp check: there is no task or problem %s; tasks are 1 to %zu\n",
               settings.what.c_str(), course().size());
  std::exit(2);
}

// On a terminal, one line that tells which test has ended; it is wiped out before the next output.
class Progress {
 public:
  void operator()(const TestResult& result) const {
    if (terminal_) {
      std::printf("\r\033[K%.90s", (result.suite + '.' + result.name).c_str());
      std::fflush(stdout);
    }
  }
  void clear() const {
    if (terminal_) std::printf("\r\033[K");
  }

 private:
  bool terminal_{isatty(STDOUT_FILENO) != 0};
};

void print(const std::string& label, const Tally& tally, bool compiles) {
  std::printf("%-24s %s %5.1f of %3.0f   ", label.c_str(), bar(tally).c_str(), tally.points,
              tally.possible);
  if (!compiles) {
    std::printf("does not compile\n");
  } else if (tally.complete()) {
    std::printf("complete, %d tests\n", tally.passed);
  } else if (tally.not_started == tally.tests()) {
    std::printf("not started\n");
  } else {
    std::printf("%d passed, %d failed, %d not started\n", tally.passed, tally.failed,
                tally.not_started);
  }
  std::fflush(stdout);
}

// The first failure in full, then the names of all, with the numbers of ranks that failed.
void print_failures(const std::vector<TestResult>& results) {
  std::vector<std::pair<std::string, std::string>> failed;  // test, "/W1 /W2"
  for (const TestResult& result : results) {
    if (result.outcome != Outcome::failed) continue;
    const size_t slash = std::min(result.name.rfind('/'), result.name.size());
    const std::string test = result.suite + '.' + result.name.substr(0, slash);
    if (failed.empty()) {
      std::printf("\n%s%s\n%s\n", test.c_str(), result.name.substr(slash).c_str(),
                  result.text.c_str());
    }
    if (failed.empty() || failed.back().first != test) failed.emplace_back(test, "");
    failed.back().second += (failed.back().second.empty() ? "" : " ") + result.name.substr(slash);
  }
  for (const auto& [test, ranks] : failed)
    std::printf("failed: %s %s\n", test.c_str(), ranks.c_str());
}

class Check {
 public:
  explicit Check(const Settings& settings) : settings_(settings) {}

  int operator()() {
    for (const Task& task : course()) {
      if (settings_.wants(task)) run(task);
    }
    if (settings_.what.empty()) print("all", total_, true);
    print_failures(results_);
    print_next_step();
    return total_.complete() ? 0 : 1;
  }

 private:
  void run(const Task& task) {
    const auto& broken = settings_.broken;
    const bool compiles = std::find(broken.begin(), broken.end(), task.number) == broken.end();
    std::vector<TestResult> results;
    for (int i = 0; compiles && i < settings_.repeat; ++i) {
      TestRunOptions options;
      options.filter = settings_.filter(task);
      options.on_result = progress_;
      auto more = run_tests(settings_.program(task), options);
      std::move(more.begin(), more.end(), std::back_inserter(results));
    }
    progress_.clear();

    Tally sum;
    for (const Problem& problem : task.problems) {
      if (!settings_.wants(problem)) continue;
      const Tally of_problem = tally(problem, results);
      sum += of_problem;
      if (!of_problem.complete() && next_.empty()) next_ = problem.number + " " + problem.name;
      if (!settings_.what.empty()) print(problem.number + " " + problem.name, of_problem, compiles);
    }
    if (settings_.what.size() <= 1) {
      print("task " + std::to_string(task.number) + " " + task.name, sum, compiles);
    }
    total_ += sum;
    std::move(results.begin(), results.end(), std::back_inserter(results_));
  }

  void print_next_step() const {
    if (total_.complete()) return;
    if (total_.not_started == total_.tests() && total_.tests() > 0) {
      std::printf("\nNothing of this is written yet, so this is how it should look.\n");
    } else {
      std::printf("\n");
    }
    const std::string number = next_.substr(0, next_.find(' '));
    std::printf("Next: problem %s, in tasks/task%c_*/; then ./fsdp check %s\n", next_.c_str(),
                next_[0], number.c_str());
  }

  const Settings& settings_;
  Progress progress_;
  Tally total_;
  std::vector<TestResult> results_;
  std::string next_;  // the first problem that is not complete
};

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  const auto settings = fsdp::parse(argc, argv);
  try {
    return fsdp::Check(settings)();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fsdp check: %s\n", error.what());
    return 1;
  }
}
