#include <testing/end_test.h>
#include <testing/rank_report.h>
#include <testing/rank_run.h>
#include <testing/story.h>

#include <algorithm>
#include <utility>

namespace fsdp {

RankRun::RankRun(const std::vector<RankReport>& ranks) : failure_(describe_failure(ranks)) {
  for (const RankReport& report : ranks) {
    observations_.push_back(report.observations);
    observed_after_.push_back(report.observed_after);
    steps_.push_back(report.steps);
  }
  if (!failure_.empty()) failure_ = "\n" + fsdp::story(steps_) + failure_;
}

std::string RankRun::story(const std::string& name,
                           const std::vector<const nlohmann::json*>& expected) const {
  if (std::exchange(told_, true)) return "";
  std::vector<std::vector<std::string>> steps = steps_;
  std::optional<StoryPlace> place;
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    const auto found = observed_after_[rank].find(name);
    if (found == observed_after_[rank].end()) continue;
    steps[rank].resize(std::min(found->second, steps[rank].size()));
    const bool known = !place && rank < expected.size() && expected[rank] != nullptr;
    if (known) place = place_of_call(steps[rank], observations_[rank].at(name), *expected[rank]);
  }
  return fsdp::story(steps, place);
}

bool RankRun::observed(int rank, const std::string& name) const {
  return observations_.at(rank).count(name) > 0;
}

std::vector<std::string> RankRun::names(int rank) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : observations_.at(rank))
    names.push_back(name);
  return names;
}

const nlohmann::json& RankRun::at(int rank, const std::string& name, const char* file,
                                  int line) const {
  const auto& observed = observations_.at(rank);
  const auto found = observed.find(name);
  if (found != observed.end()) return found->second;
  std::string seen;
  for (const std::string& other : names(rank))
    seen += "\n  \"" + other + '"';
  end_test(testing::TestPartResult::kFatalFailure, file, line,
           "rank " + std::to_string(rank) + " did not observe \"" + name + "\". It observed " +
               (seen.empty() ? "nothing." : "only:" + seen));
}

ObservedTensor RankRun::tensor(int rank, const std::string& name, const char* file,
                               int line) const {
  const nlohmann::json& value = at(rank, name, file, line);
  if (value.is_null()) {
    end_test(testing::TestPartResult::kFatalFailure, file, line,
             "rank " + std::to_string(rank) + " observed \"" + name +
                 "\", which is an undefined tensor");
  }
  return to_tensor(value);
}

}  // namespace fsdp
