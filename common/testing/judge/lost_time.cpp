#include <testing/judge/lost_time.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

namespace fsdp {
namespace {

using std::chrono::seconds;

constexpr seconds kMostOfProblem{60};

// Returns the problem to which a suite belongs: "T4_4" for "T4_4_finish".
std::string problem_of(const std::string& suite) {
  return suite.substr(0, suite.find('_', std::min(suite.find('_'), suite.size() - 1) + 1));
}

std::string not_run(seconds lost, const std::string& where) {
  return "not run: earlier runs of " + where + " did not end, and took " +
         std::to_string(lost.count()) + " s";
}

}  // namespace

LostTime LostTime::from_environment() {
  const char* most = std::getenv("FSDP_MOST_LOST_SECONDS");
  return LostTime(most == nullptr ? seconds::max() : seconds(std::strtol(most, nullptr, 10)));
}

std::string LostTime::refusal(const std::string& suite) const {
  seconds all{};
  for (const auto& [problem, lost] : of_problem_)
    all += lost;
  if (all >= most_) return not_run(all, "this task");
  const auto found = of_problem_.find(problem_of(suite));
  if (found == of_problem_.end() || found->second < kMostOfProblem) return "";
  return not_run(found->second, "this problem");
}

void LostTime::add(const std::string& suite, seconds lost) {
  of_problem_[problem_of(suite)] += lost;
}

seconds lost_by(const std::vector<RankReport>& ranks, seconds limit) {
  seconds lost{};
  for (const RankReport& report : ranks) {
    const bool in_vain =
        report.exit.message.find("CommunicatorOptions::timeout") != std::string::npos;
    lost = std::max(lost, report.exit.signal == SIGALRM ? limit : in_vain ? kWait : seconds{0});
  }
  return lost;
}

}  // namespace fsdp
