#include <base/text.h>
#include <base/whole_file.h>
#include <check/score.h>
#include <trace/timeline.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

namespace fsdp {
namespace {

struct Settings {
  std::string what;  // "", "3" or "3.2"
  int repeat{1};
  std::vector<int> worlds;          // empty: all
  std::string trace;                // a file for the timeline; empty: none
  std::string json;                 // a file for the results; empty: none
  std::vector<std::string> stacks;  // whose code each task's tests run
  int seconds{86'400};              // for all tests of a task
  std::vector<int> broken;          // tasks that do not compile
  std::string bin;

  const std::string& stack(const Task& task) const {
    return stacks.at(static_cast<size_t>(task.number) - 1);
  }
  // The program of a task's tests.
  std::string program(const Task& task) const {
    return bin + "/" + stack(task) + "_task" + std::to_string(task.number) + "_tests";
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
  // What the script makes of --base and --solutions is --stacks; here they are only explained.
  std::string base;
  bool solutions{};
  app.add_option("--base", base,
                 "what a task stands on: reference, the solutions of the tasks before it "
                 "(default, as far as they are here), or mine, your own")
      ->check(CLI::IsMember({"reference", "mine"}));
  app.add_flag("--solutions", solutions, "the reference solutions instead of tasks/");
  app.add_option("--repeat", settings.repeat, "run every test that often (default 1)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--world", settings.worlds, "numbers of ranks, 1,2,3,4 or some of them")
      ->delimiter(',')
      ->check(CLI::Range(1, 8));
  app.add_option("--trace", settings.trace,
                 "write the timeline of the first test that fails, else of the last one, to "
                 "FILE.txt, .json or .html");
  app.add_option("--json", settings.json, "write every test's result to FILE");
  app.add_option("--stacks", settings.stacks, "one for each task")
      ->delimiter(',')
      ->required()
      ->group("");
  app.add_option("--seconds", settings.seconds, "for all tests of a task; those that are left fail")
      ->group("");
  app.add_option("--broken", settings.broken, "tasks that do not compile")
      ->delimiter(',')
      ->group("");
  try {
    app.parse(argc, argv);
    settings.stacks.resize(course().size(), settings.stacks.back());
    if (!settings.trace.empty()) {
      timeline_writer(settings.trace);
      settings.trace = std::filesystem::absolute(settings.trace);
      std::filesystem::remove(settings.trace);
      setenv("FSDP_TRACE", settings.trace.c_str(), 1);
    }
  } catch (const CLI::CallForHelp& help) {
    std::exit(app.exit(help));
  } catch (const std::exception& error) {
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

const Problem& problem_of(const TestResult& result) {
  for (const Task& task : course()) {
    for (const Problem& problem : task.problems) {
      const auto& suites = problem.suites;
      if (std::find(suites.begin(), suites.end(), result.suite) != suites.end()) return problem;
    }
  }
  throw std::logic_error("suite " + result.suite + " belongs to no problem");
}

// As a story: which invariant does not hold, what the ranks did, where it shows, what helps.
void print_failure(const TestResult& result) {
  constexpr size_t kColumns = 100;
  const Problem& problem = problem_of(result);
  std::printf("\nProblem %s %s, %s\n\n", problem.number.c_str(), problem.name.c_str(),
              sentence(result).c_str());
  const char* root = std::getenv("FSDP_ROOT");
  const std::string prefix = root == nullptr ? "" : std::string(root) + '/';
  std::istringstream lines(result.text);
  for (std::string line; std::getline(lines, line);) {
    if (line == "Failed" || line.empty()) continue;  // GoogleTest's
    const size_t path = prefix.empty() ? std::string::npos : line.find(prefix);
    if (path != std::string::npos) line.erase(path, prefix.size());
    std::printf("%s\n", wrap(line, kColumns, 4).c_str());
  }
  std::printf("\nHint: ./fsdp hint %s\n\n", problem.number.c_str());
}

// "T3_2_post_forward.only_the_root_stays_gathered", without the number of ranks.
std::string name_of(const TestResult& result) {
  return result.suite + '.' + result.name.substr(0, result.name.rfind("/W"));
}

// Of the first test that failed, the run on the fewest ranks, but not on one, if there is a choice:
// there no collective has anything to do.
const TestResult* telling_failure(const std::vector<TestResult>& results) {
  const TestResult* found = nullptr;
  for (const TestResult& result : results) {
    if (result.outcome != Outcome::failed) continue;
    if (found == nullptr) found = &result;
    if (name_of(result) != name_of(*found)) continue;
    if (found->name.ends_with("/W1")) found = &result;
  }
  return found;
}

// One failure in full, then the names of all, with the numbers of ranks that failed.
void print_failures(const std::vector<TestResult>& results) {
  if (const TestResult* failure = telling_failure(results)) print_failure(*failure);
  std::vector<std::pair<std::string, std::string>> failed;  // test, "/W1 /W2"
  for (const TestResult& result : results) {
    if (result.outcome != Outcome::failed) continue;
    const size_t slash = std::min(result.name.rfind("/W"), result.name.size());
    const std::string test = name_of(result);
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
    print_bases();
    print_failures(results_);
    if (!settings_.json.empty()) write_whole_file(settings_.json, json());
    print_next_step();
    if (std::filesystem::exists(settings_.trace)) {
      std::printf("timeline: %s\n", settings_.trace.c_str());
    }
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
      options.whole_limit = std::chrono::seconds(settings_.seconds);
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
    const bool held = settings_.what.size() <= 1 && sentinel_fails(task, results) && sum.points > 0;
    if (held) sum.points = 0;
    if (settings_.what.size() <= 1) {
      print("task " + std::to_string(task.number) + " " + task.name, sum, compiles);
    }
    if (held) {
      std::printf(
          "    what shards nothing earns nothing: its points count once this passes,\n    %s\n",
          task.sentinel.c_str());
    }
    total_ += sum;
    std::move(results.begin(), results.end(), std::back_inserter(results_));
  }

  std::string json() const {
    constexpr std::array<const char*, 3> outcomes{"passed", "failed", "not started"};
    nlohmann::ordered_json tests = nlohmann::json::array();
    for (const TestResult& result : results_) {
      tests.push_back({{"problem", problem_of(result).number},
                       {"suite", result.suite},
                       {"name", result.name},
                       {"outcome", outcomes.at(static_cast<size_t>(result.outcome))},
                       {"text", result.text}});
    }
    const nlohmann::ordered_json all{
        {"points", total_.points}, {"possible", total_.possible}, {"tests", tests}};
    constexpr auto kReplace = nlohmann::json::error_handler_t::replace;  // what is no UTF-8
    return all.dump(1, ' ', false, kReplace) + '\n';
  }

  // "Each task stood on the reference solutions of those before it."
  void print_bases() const {
    std::string own;
    for (const Task& task : course()) {
      if (!settings_.wants(task) || settings_.stack(task) != "mine") continue;
      own += (own.empty() ? "" : ", ") + std::to_string(task.number);
    }
    if (settings_.stacks.front() != "mine" && settings_.stacks.front() != "mine_on_reference") {
      std::printf("What was tested: the stack %s, not tasks/.\n", settings_.stacks.front().c_str());
    } else if (own.empty()) {
      std::printf("Each task stood on the reference solutions of those before it.\n");
    } else {
      std::printf("Tested over your own code of the tasks before: %s.\n", own.c_str());
    }
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
