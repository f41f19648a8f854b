#include <base/text.h>
#include <check/print.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace fsdp {
namespace {

// "#####...........": which part of the tests passed.
std::string bar(const Tally& tally) {
  constexpr int kWidth = 16;
  const int full = tally.tests() == 0 ? 0 : kWidth * tally.passed / tally.tests();
  return std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(kWidth - full), '.');
}

// The name of a test as a sentence: "on 2 ranks: only the root stays gathered for backward".
std::string sentence(const TestResult& result) {
  std::string text = result.test().substr(result.suite.size() + 1);
  std::replace(text.begin(), text.end(), '_', ' ');
  if (result.ranks().empty()) return text;
  const std::string ranks = result.ranks().substr(1);
  return "on " + ranks + (ranks == "1" ? " rank: " : " ranks: ") + text;
}

void print_failure(const TestResult& result) {
  constexpr size_t kColumns = 100;
  const Problem& problem = problem_of(result);
  std::printf("\nProblem %s %s, %s\n\n", problem.number.c_str(), problem.name.c_str(),
              sentence(result).c_str());
  std::istringstream lines(result.text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) std::printf("%s\n", wrap(line, kColumns, 4).c_str());
  }
  std::printf("\nHint: ./fsdp hint %s\n\n", problem.number.c_str());
}

// "Task 5 was", "Tasks 5, 6 and 7 were".
std::string tasks_were(const std::vector<int>& numbers) {
  if (numbers.size() == 1) return "Task " + std::to_string(numbers[0]) + " was";
  std::string text = "Tasks ";
  for (size_t i = 0; i < numbers.size(); ++i) {
    text += i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ";
    text += std::to_string(numbers[i]);
  }
  return text + " were";
}

struct NextStep {
  const Task* task;
  const Problem* problem;
};

// The first problem that is not complete.
NextStep next_step(const std::vector<TaskResult>& tasks) {
  for (const TaskResult& task : tasks) {
    for (const auto& [problem, tally] : task.problems) {
      if (!tally.complete()) return {task.task, problem};
    }
  }
  return {};
}

// A function of another problem that has to be written before the tests of `problem` can run:
// "FlatParameter::unshard (problem 2.3)". Empty if there is none.
std::string missing_before(const Problem& problem, const std::vector<TaskResult>& tasks) {
  for (const TaskResult& task : tasks) {
    for (const TestResult& test : task.tests) {
      if (test.outcome != Outcome::not_started || &problem_of(test) != &problem) continue;
      const bool own = test.text.find("problem " + problem.number) != std::string::npos;
      return own ? "" : test.text;
    }
  }
  return "";
}

}  // namespace

void print_tally(const std::string& label, const Tally& tally, bool compiles) {
  std::printf("%-24s %s %5.1f of %3.0f   ", label.c_str(), bar(tally).c_str(), tally.points,
              tally.possible);
  if (!compiles) {
    std::printf("does not compile\n");
  } else if (tally.complete()) {
    std::printf("complete, %d tests\n", tally.passed);
  } else if (tally.tests() == 0 && !tally.untested) {
    std::printf("no test on these numbers of ranks\n");
  } else if (tally.not_started == tally.tests()) {
    std::printf("not started\n");
  } else {
    std::printf("%d passed, %d failed, %d not started\n", tally.passed, tally.failed,
                tally.not_started);
  }
  std::fflush(stdout);
}

void print_task(const Settings& settings, const TaskResult& task) {
  if (!settings.what.empty()) {
    for (const auto& [problem, tally] : task.problems)
      print_tally(problem->number + " " + problem->name, tally, task.compiles);
  }
  if (settings.wants_whole_tasks()) {
    print_tally("task " + std::to_string(task.task->number) + " " + task.task->name, task.sum,
                task.compiles);
  }
  if (task.held) {
    std::printf("    this task's points count only once this test passes:\n    %s\n",
                task.task->sentinel.c_str());
  }
}

void print_bases(const Settings& settings, const std::vector<TaskResult>& tasks) {
  std::vector<int> own, on_reference;
  for (const TaskResult& task : tasks) {
    const std::string& stack = settings.stack(*task.task);
    if (task.tests.empty()) continue;
    if (stack != "mine" && stack != "mine_on_reference") {
      std::printf("Tested %s, not tasks/.\n", stack == "reference"
                                                  ? "the reference solutions"
                                                  : ("the stack " + stack).c_str());
      return;
    }
    if (task.task->number > 1)  // nothing lies under task 1
      (stack == "mine" ? own : on_reference).push_back(task.task->number);
  }
  if (!own.empty()) {
    const char* under = own.size() == 1 ? "it" : "each";
    std::printf("%s tested over your own code of the tasks before %s.\n", tasks_were(own).c_str(),
                under);
  }
  if (!on_reference.empty()) {
    const char* under = on_reference.size() == 1 ? "it" : "each";
    std::printf("%s tested over the reference solutions of the tasks before %s.\n",
                tasks_were(on_reference).c_str(), under);
  }
}

void print_failures(const std::vector<TestResult>& tests) {
  if (const TestResult* failure = telling_failure(tests)) print_failure(*failure);
  std::vector<std::pair<std::string, std::string>> failed;  // test, " /W1 /W2"
  for (const TestResult& result : tests) {
    if (!has_failed(result)) continue;
    if (failed.empty() || failed.back().first != result.test())
      failed.emplace_back(result.test(), "");
    if (!result.ranks().empty()) failed.back().second += " /" + result.ranks();
  }
  for (const auto& [test, ranks] : failed)
    std::printf("failed: %s%s\n", test.c_str(), ranks.c_str());
}

void print_next_step(const std::vector<TaskResult>& tasks) {
  const auto [task, problem] = next_step(tasks);
  if (problem == nullptr) return;
  const bool nothing = std::all_of(tasks.begin(), tasks.end(),
                                   [](const TaskResult& result) { return result.not_started(); });
  std::printf(nothing ? "\nNothing of this is written yet, so this is how it should look.\n"
                      : "\n");
  std::printf("Next: problem %s %s, in tasks/task%d_*/; then ./fsdp check %s\n",
              problem->number.c_str(), problem->name.c_str(), task->number,
              problem->number.c_str());
  const std::string missing = missing_before(*problem, tasks);
  if (!missing.empty()) {
    std::printf("Its tests need another function that is still to be written: %s\n",
                missing.c_str());
  }
}

}  // namespace fsdp
