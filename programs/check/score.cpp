#include <check/score.h>

#include <algorithm>

namespace fsdp {

int Task::points() const {
  int sum = 0;
  for (const Problem& problem : problems)
    sum += problem.points;
  return sum;
}

Tally& Tally::operator+=(const Tally& other) {
  passed += other.passed;
  failed += other.failed;
  not_started += other.not_started;
  points += other.points;
  possible += other.possible;
  return *this;
}

Tally tally(const Problem& problem, const std::vector<TestResult>& results) {
  Tally tally;
  tally.possible = problem.points;
  for (const TestResult& result : results) {
    const auto& suites = problem.suites;
    if (std::find(suites.begin(), suites.end(), result.suite) == suites.end()) continue;
    tally.passed += result.outcome == Outcome::passed;
    tally.failed += result.outcome == Outcome::failed;
    tally.not_started += result.outcome == Outcome::not_started;
  }
  if (tally.tests() > 0) tally.points = tally.possible * tally.passed / tally.tests();
  return tally;
}

bool sentinel_fails(const Task& task, const std::vector<TestResult>& results) {
  return !task.sentinel.empty() &&
         std::any_of(results.begin(), results.end(), [&](const TestResult& result) {
           const std::string test = result.suite + '.' + result.name;
           return test.substr(0, test.rfind('/')) == task.sentinel &&
                  result.outcome != Outcome::passed;
         });
}

std::string sentence(const TestResult& result) {
  const size_t slash = result.name.rfind("/W");
  std::string text = result.name.substr(0, slash);
  std::replace(text.begin(), text.end(), '_', ' ');
  if (slash == std::string::npos) return text;
  const std::string ranks = result.name.substr(slash + 2);
  return "on " + ranks + (ranks == "1" ? " rank: " : " ranks: ") + text;
}

std::string bar(const Tally& tally) {
  constexpr int kWidth = 16;
  const int full = tally.tests() == 0 ? 0 : kWidth * tally.passed / tally.tests();
  return std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(kWidth - full), '.');
}

}  // namespace fsdp
