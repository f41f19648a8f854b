#include <check/task_result.h>

#include <nlohmann/json.hpp>

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

bool belongs_to(const TestResult& result, const Problem& problem) {
  return &problem_of(result) == &problem;
}

// The telling failure of a problem, or what is still to be written.
std::string explanation(const Problem& problem, const std::vector<TestResult>& tests) {
  std::vector<TestResult> own;
  for (const TestResult& test : tests) {
    if (belongs_to(test, problem)) own.push_back(test);
  }
  if (const TestResult* failure = telling_failure(own)) {
    return failure->suite + '.' + failure->name + '\n' + failure->text;
  }
  for (const TestResult& test : own) {
    if (test.outcome == Outcome::not_started) return "not started: " + test.text;
  }
  return "";
}

Json to_json(const Problem& problem, const Tally& tally, const TaskResult& task) {
  return {{"number", problem.number},       {"name", problem.name},
          {"extension", problem.extension}, {"passed", tally.passed},
          {"failed", tally.failed},         {"not_started", tally.not_started},
          {"share", tally.share()},         {"points", task.held ? 0 : tally.points},
          {"possible", tally.possible},     {"explanation", explanation(problem, task.tests)}};
}

Json to_json(const TestResult& test) {
  return {{"problem", problem_of(test).number},
          {"suite", test.suite},
          {"name", test.name},
          {"test", test.test()},
          {"ranks", test.ranks()},
          {"outcome", to_string(test.outcome)},
          {"text", test.text},
          {"milliseconds", test.milliseconds}};
}

}  // namespace

void TaskResult::add(const Problem& problem, const Tally& tally) {
  problems.emplace_back(&problem, tally);
  (problem.extension ? extensions : sum) += tally;
}

std::string to_json(const CourseResult& course) {
  Json problems = Json::array(), tests = Json::array(), held = Json::array();
  for (const TaskResult& task : course.tasks) {
    for (const auto& [problem, tally] : task.problems)
      problems.push_back(to_json(*problem, tally, task));
    for (const TestResult& test : task.tests)
      tests.push_back(to_json(test));
    if (sentinel_fails(*task.task, task.tests)) held.push_back(task.task->number);
  }
  const Json all{{"points", course.sum.points},
                 {"possible", course.sum.possible},
                 {"extensions",
                  {{"points", course.extensions.points}, {"possible", course.extensions.possible}}},
                 {"sentinel_fails", held},  // in these tasks
                 {"problems", problems},
                 {"tests", tests}};
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace fsdp
