#include <base/whole_file.h>
#include <check/check_course.h>
#include <check/print.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <stdexcept>

namespace fsdp {
namespace {

// Shows the name of the running test in one line of the terminal; prints nothing if stdout is not a
// terminal. Call clear(), which erases the line, before other output is printed.
class Progress {
 public:
  void operator()(const TestResult& result) const {
    if (terminal_) {
      std::printf("\r\033[K%.90s", result.full_name().c_str());
      std::fflush(stdout);
    }
  }
  void clear() const {
    if (terminal_) std::printf("\r\033[K");
  }

 private:
  bool terminal_{isatty(STDOUT_FILENO) != 0};
};

// Removes from the paths in `text` the folder FSDP_ROOT, the repository's root, so that the paths
// are relative to it.
void shorten_paths(std::string& text) {
  const char* root = std::getenv("FSDP_ROOT");
  if (root == nullptr) return;
  const std::string prefix = std::string(root) + '/';
  for (size_t at = 0; (at = text.find(prefix, at)) != std::string::npos;)
    text.erase(at, prefix.size());
}

std::string problem_of_suite(const std::string& suite) {
  return problem_of({suite, "", Outcome::passed}).number;
}

std::vector<TestResult> run_task(const Settings& settings, const Task& task) {
  const Progress progress;
  std::vector<TestResult> tests;
  for (int i = 0; settings.runs(task) && i < settings.repeat; ++i) {
    TestRunOptions options;
    options.filter = settings.filter(task);
    options.on_start = progress;
    options.whole_limit = std::chrono::seconds(settings.seconds);
    options.output = settings.output;
    if (settings.stop_hanging) options.problem_of = problem_of_suite;
    TestRun run = run_tests(settings.program(task), options);
    if (run.results.empty() && !settings.test.empty()) {
      throw std::runtime_error("problem " + settings.what + " has no test " + settings.test);
    }
    if (run.results.empty() && settings.worlds.empty()) {
      throw std::runtime_error(settings.program(task) + " has no test " + options.filter);
    }
    std::move(run.results.begin(), run.results.end(), std::back_inserter(tests));
  }
  progress.clear();
  for (TestResult& test : tests)
    shorten_paths(test.text);
  sort_by_suite(tests);
  return tests;
}

TaskResult check_task(const Settings& settings, const Task& task) {
  TaskResult result;
  result.task = &task;
  result.unusable = settings.unusable(task);
  result.tests = run_task(settings, task);
  for (const Problem& problem : task.problems) {
    if (!settings.wants(problem)) continue;
    Tally of_problem = tally(problem, result.tests);
    of_problem.untested = !settings.runs(task);
    result.add(problem, of_problem);
  }
  result.points_withheld =
      settings.wants_whole_tasks() && result.sum.points > 0 && sentinel_fails(task, result.tests);
  if (result.points_withheld) result.sum.points = result.extensions.points = 0;
  return result;
}

}  // namespace

int check_course(const Settings& settings) {
  CourseResult result;
  std::vector<TestResult> tests;
  for (const Task& task : course()) {
    if (!settings.wants(task)) continue;
    const TaskResult& checked = result.tasks.emplace_back(check_task(settings, task));
    print_task(settings, checked);
    result.sum += checked.sum;
    result.extensions += checked.extensions;
    tests.insert(tests.end(), checked.tests.begin(), checked.tests.end());
  }
  if (settings.what.empty()) {
    print_tally("all", result.sum, "not started");
    print_tally("extensions", result.extensions, "not started");
  }
  print_bases(settings, result.tasks);
  std::ranges::stable_sort(tests, {},
                           [](const TestResult& test) { return problem_of(test).extension; });
  print_failures(settings, tests);
  if (!settings.json.empty()) write_whole_file(settings.json, to_json(result));
  if (!settings.page.empty()) write_whole_file(settings.page, html_map(settings, result));
  if (!result.complete()) std::printf("%s", next_step(settings, result.tasks).second.c_str());
  print_recording(settings.record, tests);
  print_timeline(settings.trace, tests);
  print_output(settings.output);
  return result.complete() ? 0 : 1;
}

}  // namespace fsdp
