#include <base/text.h>
#include <check/print.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <sstream>

namespace fsdp {
namespace {

// Returns a bar of 16 characters that shows what fraction of the tests passed: "#####...........".
std::string bar(const Tally& tally) {
  constexpr int kWidth = 16;
  const int full = tally.tests() == 0 ? 0 : kWidth * tally.passed / tally.tests();
  return std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(kWidth - full), '.');
}

// Returns a test's name as a sentence: "on 2 ranks: only the root stays gathered for backward".
std::string sentence(const TestResult& result) {
  std::string text = result.test().substr(result.suite.size() + 1);
  std::ranges::replace(text, '_', ' ');
  if (result.ranks().empty()) return text;
  const std::string ranks = result.ranks().substr(1);
  return "on " + ranks + (ranks == "1" ? " rank: " : " ranks: ") + text;
}

// Returns the option that makes ./fsdp why test the code that this run of check tested, with a
// space before it: " --solutions" or " --base mine"; "" if ./fsdp why needs no option.
std::string base_option(const Settings& settings, const Task& task) {
  const std::string& stack = settings.stack(task);
  if (stack == "reference") return " --solutions";
  return stack == "mine" && task.number > 1 ? " --base mine" : "";
}

void print_failure(const Settings& settings, const TestResult& result) {
  constexpr size_t kColumns = 100;
  const Problem& problem = problem_of(result);
  std::printf("\nProblem %s %s, %s\n\n", problem.number.c_str(), problem.name.c_str(),
              sentence(result).c_str());
  std::istringstream lines(result.text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) std::printf("%s\n", wrap(line, kColumns, 4).c_str());
  }
  std::printf("\nHint: ./fsdp hint %s\n", problem.number.c_str());
  if (!result.ranks().empty() && !result.timed_out) {
    const std::string base =
        base_option(settings, course()[static_cast<size_t>(problem.number.front() - '0')]);
    std::printf("Why: ./fsdp why %s --test %s%s\n", problem.number.c_str(), result.name.c_str(),
                base.c_str());
  }
  std::printf("\n");
  // The advice to run ./fsdp diff is printed only for tests of task 7, because only they train a
  // whole model.
  if (problem.number.front() != '7') return;
  const std::string world = result.ranks().empty() ? "2" : result.ranks().substr(1);
  std::printf(
      "If values differ, find where the bits first differ:\n"
      "    ./fsdp diff --a \"--mode single --world %s\" --b \"--mode fsdp --world %s\"\n\n",
      world.c_str(), world.c_str());
}

// Prints each reason for which tests were not run, and how many tests count as failed because of
// it.
void print_not_run(const std::vector<TestResult>& tests) {
  // Key: the text "not run: WHY". Value: how many tests were not run for the reason WHY.
  std::map<std::string, int> counts;
  for (const TestResult& result : tests)
    if (result.not_run) ++counts[result.text.substr(0, result.text.find('\n'))];
  for (const auto& [text, count] : counts)
    std::printf("%s; so %d more %s as failed\n", text.c_str(), count,
                count == 1 ? "test counts" : "tests count");
}

// Returns the text for the tasks `first` to `last`: "task 4", "tasks 1 and 2" or "tasks 1 to 3".
std::string tasks_text(int first, int last) {
  if (first == last) return "task " + std::to_string(first);
  return "tasks " + std::to_string(first) + (first + 1 == last ? " and " : " to ") +
         std::to_string(last);
}

// Returns the task's first problem that is not complete, or null if all are complete. Skips
// extensions, unless all selected problems of this task are extensions.
const std::pair<const Problem*, Tally>* first_incomplete(const TaskResult& task) {
  for (const auto& problem : task.problems) {
    const bool optional = problem.first->extension && task.sum.possible > 0;
    if (!optional && !problem.second.complete()) return &problem;
  }
  return nullptr;
}

// Returns the problem whose number `text` contains, as in "FlatParameter::unshard (problem 2.3)";
// null if `text` contains none. A test with the outcome "not started" has such a text: it names the
// function that the student has not written yet.
const Problem* problem_named(const std::string& text) {
  for (const Task& task : course()) {
    for (const Problem& problem : task.problems) {
      if (text.find("(problem " + problem.number + ")") != std::string::npos) return &problem;
    }
  }
  return nullptr;
}

// Returns the function, still to be written by the student, that keeps the tests of `problem` from
// running, if this function belongs to another problem. If `problem` is null, it is about the tests
// of the whole task, and the function must belong to another task. Returns "" if there is no such
// function, or if one of these tests also lacks a function of the problem or task itself.
std::string needs(const TaskResult& task, const Problem* problem = nullptr) {
  std::string found;
  for (const TestResult& test : task.tests) {
    if (test.outcome != Outcome::not_started || (problem && &problem_of(test) != problem)) continue;
    const std::string own =
        problem ? problem->number + ')' : std::to_string(task.task->number) + '.';
    if (test.text.find("(problem " + own) != std::string::npos) return "";
    if (found.empty()) found = test.text;
  }
  return found;
}

}  // namespace

std::string base_text(int task, int solutions) {
  std::string own = "your own " + tasks_text(solutions + 1, task - 1);
  if (solutions == 0) return own;
  const std::string given =
      solutions == 1 ? "the reference solution of " : "the reference solutions of ";
  return given + tasks_text(1, solutions) + (solutions == task - 1 ? "" : " and " + own);
}

std::string reason(const TaskResult& task, const Problem* problem) {
  if (!task.unusable.empty()) return task.unusable;
  const std::string missing = needs(task, problem);
  return missing.empty() ? "not started" : "needs " + missing;
}

void print_tally(const std::string& label, const Tally& tally, const std::string& why) {
  std::printf("%-24s %s %5.1f of %3.0f   ", label.c_str(), bar(tally).c_str(), tally.points,
              tally.possible);
  if (tally.complete()) {
    std::printf("complete, %d tests\n", tally.passed);
  } else if (tally.tests() == 0 && !tally.untested) {
    std::printf("no test on these numbers of ranks\n");
  } else if (tally.not_started == tally.tests()) {
    std::printf("%s\n", why.c_str());
  } else {
    std::printf("%d passed, %d failed, %d not started\n", tally.passed, tally.failed,
                tally.not_started);
  }
  std::fflush(stdout);
}

void print_task(const Settings& settings, const TaskResult& task) {
  if (!settings.what.empty()) {
    for (const auto& [problem, tally] : task.problems)
      print_tally((problem->extension ? "+ " : "") + problem->number + " " + problem->name, tally,
                  reason(task, problem));
  }
  if (settings.wants_whole_tasks()) {
    print_tally((task.task->is_optional() ? "+ task " : "task ") +
                    std::to_string(task.task->number) + " " + task.task->name,
                task.tally(), reason(task));
  }
  if (task.points_withheld) {
    std::printf(
        "    This task has no points until the following test passes. It fails only if a rank\n"
        "    holds as much memory as without the task, or ends early.\n"
        "    %s\n",
        task.task->sentinel.c_str());
  }
}

void print_bases(const Settings& settings, const std::vector<TaskResult>& tasks) {
  for (const TaskResult& result : tasks) {
    if (result.tests.empty()) continue;
    const Task& task = *result.task;
    const int solutions = settings.solutions_under(task);
    if (solutions < 0) {
      const std::string& stack = settings.stack(task);
      const std::string what =
          stack == "reference" ? "the reference solutions" : "the stack " + stack;
      std::printf("Tested %s, not tasks/.\n", what.c_str());
      return;
    }
    if (task.number > 1) {  // tests of tasks 0 and 1 use no earlier task
      std::printf("Task %d was tested over %s.\n", task.number,
                  base_text(task.number, solutions).c_str());
    }
  }
}

void print_failures(const Settings& settings, const std::vector<TestResult>& tests) {
  if (const TestResult* failure = telling_failure(tests)) print_failure(settings, *failure);
  // Each failed test, and the numbers of ranks on which it failed: " W12" means on 1 and on 2
  // ranks.
  std::vector<std::pair<std::string, std::string>> failed;
  for (const TestResult& result : tests) {
    if (!has_failed(result) || result.not_run) continue;
    if (failed.empty() || failed.back().first != result.test())
      failed.emplace_back(result.test(), "");
    std::string& ranks = failed.back().second;
    if (!result.ranks().empty())
      ranks += ranks.empty() ? ' ' + result.ranks() : result.ranks().substr(1);
  }
  for (const auto& [test, ranks] : failed)
    std::printf("failed: %s%s\n", test.c_str(), ranks.c_str());
  print_not_run(tests);
}

std::pair<const Problem*, std::string> next_step(const Settings& settings,
                                                 const std::vector<TaskResult>& tasks) {
  const bool solution_is_here = std::any_of(
      tasks.begin(), tasks.end(),
      [&](const TaskResult& result) { return settings.solutions_under(*result.task) > 0; });
  const auto is_next = [&](const TaskResult& result) {
    const bool selected = !result.task->is_optional() || !settings.what.empty();
    return selected && first_incomplete(result);
  };
  auto task = std::ranges::find_if(tasks, [&](const TaskResult& result) {
    const bool may_wait = result.task->number == 1 && result.not_started() && solution_is_here;
    return !may_wait && is_next(result);
  });
  if (task == tasks.end()) task = std::ranges::find_if(tasks, is_next);
  if (task == tasks.end()) return {};
  const auto& [problem, tally] = *first_incomplete(*task);
  // No test of this problem ran, so its state is unknown.
  if (tally.tests() == 0 && !tally.untested) return {};
  const std::string missing = tally.failed > 0 ? "" : needs(*task, problem);
  const Problem* const other = problem_named(missing);
  const Problem& next = other ? *other : *problem;
  std::string text = "\n";
  if (other) {
    text += "The tests of problem " + problem->number +
            " need a function that is still to be written: " + missing + '\n';
  } else if (std::ranges::all_of(tasks, &TaskResult::not_started)) {
    text += "Nothing of this is written yet, so this is how it should look.\n";
  }
  return {&next, text + "Next: problem " + next.number + ' ' + next.name + ", in tasks/" +
                     (next.in_extensions ? "extensions/" : "") + "task" + next.number[0] +
                     "_*/; then ./fsdp check " + problem->number + '\n'};
}

void print_recording(const std::string& folder, const std::vector<TestResult>& tests) {
  const TestResult* const failure = telling_failure(tests);
  if (folder.empty() || failure == nullptr) return;
  const std::string path = folder + '/' + failure->suite + '.' + failure->name;
  if (std::filesystem::exists(path))
    std::printf("recorded: ./fsdp replay %s --rank 0 --preset debug -- gdb\n", path.c_str());
}

void print_timeline(const std::string& file, const std::vector<TestResult>& tests) {
  const auto test = std::find_if(tests.rbegin(), tests.rend(),
                                 [](const TestResult& result) { return result.timeline; });
  if (test == tests.rend()) return;
  std::printf("timeline of %s.%s: %s\n", test->suite.c_str(), test->name.c_str(), file.c_str());
}

void print_output(const std::string& file) {
  if (file.empty()) return;
  const bool printed = std::filesystem::exists(file);
  std::printf("%s: %s\n", printed ? "what the tests printed" : "no test printed anything",
              file.c_str());
}

}  // namespace fsdp
