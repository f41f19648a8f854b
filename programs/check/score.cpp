#include <check/score.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace fsdp {
namespace {

bool contains(const Problem& problem, const TestResult& result) {
  return std::ranges::count(problem.suites, result.suite) > 0;
}

struct Suite {
  std::string name;
  const Problem* problem;
};

const std::vector<Suite>& suites() {
  static const std::vector<Suite> all = [] {
    std::vector<Suite> found;
    for (const Task& task : course()) {
      for (const Problem& problem : task.problems) {
        for (const std::string& name : problem.suites)
          found.push_back({name, &problem});
      }
    }
    return found;
  }();
  return all;
}

size_t position(const TestResult& result) {
  const auto found = std::ranges::find(suites(), result.suite, &Suite::name);
  if (found == suites().end()) {
    throw std::logic_error("suite " + result.suite + " belongs to no problem");
  }
  return static_cast<size_t>(found - suites().begin());
}

}  // namespace

int Task::points() const {
  int sum = 0;
  for (const Problem& problem : problems)
    sum += problem.extension ? 0 : problem.points;
  return sum;
}

double Tally::share() const {
  return possible == 0 ? 0 : points / possible;
}

Tally& Tally::operator+=(const Tally& other) {
  passed += other.passed;
  failed += other.failed;
  not_started += other.not_started;
  untested |= other.untested;
  points += other.points;
  possible += other.possible;
  return *this;
}

bool has_failed(const TestResult& result) {
  return result.outcome == Outcome::failed || result.outcome == Outcome::skipped;
}

Tally tally(const Problem& problem, const std::vector<TestResult>& results) {
  Tally tally;
  tally.possible = problem.points;
  for (const TestResult& result : results) {
    if (!contains(problem, result)) continue;
    tally.passed += result.outcome == Outcome::passed;
    tally.failed += has_failed(result);
    tally.not_started += result.outcome == Outcome::not_started;
  }
  if (tally.tests() > 0) tally.points = tally.possible * tally.passed / tally.tests();
  if (!tally.complete()) tally.points = std::min(tally.points, tally.possible - 0.5);
  return tally;
}

bool sentinel_fails(const Task& task, const std::vector<TestResult>& results) {
  bool measured = false;
  for (const TestResult& result : results) {
    if (result.test() != task.sentinel || result.ranks() == "W1") continue;
    if (result.outcome == Outcome::passed) return false;
    measured = true;
  }
  return measured;
}

const Problem& problem_of(const TestResult& result) {
  return *suites()[position(result)].problem;
}

void sort_by_suite(std::vector<TestResult>& results) {
  std::ranges::stable_sort(results, {}, position);
}

const TestResult* telling_failure(const std::vector<TestResult>& results) {
  const TestResult* found = nullptr;
  for (const TestResult& result : results) {
    if (!has_failed(result) || result.not_run) continue;
    if (found == nullptr) found = &result;
    if (result.test() == found->test() && found->ranks() == "W1") found = &result;
  }
  if (found != nullptr) return found;
  const auto not_run = std::ranges::find_if(results, &TestResult::not_run);
  return not_run == results.end() ? nullptr : &*not_run;
}

namespace {

using Json = nlohmann::ordered_json;

bool belongs_to(const TestResult& result, const Problem& problem) {
  return &problem_of(result) == &problem;
}

// Returns the name and text of the failure that telling_failure() selects among the problem's
// tests. If no test failed, returns the function that the student still must write; "" if there is
// none.
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
          {"share", tally.share()},         {"points", task.points_withheld ? 0 : tally.points},
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
                 // A list with the numbers of the tasks whose test of memory (sentinel) fails.
                 {"sentinel_fails", held},
                 {"problems", problems},
                 {"tests", tests}};
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace fsdp
