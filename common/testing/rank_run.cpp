#include <testing/end_test.h>
#include <testing/rank_report.h>
#include <testing/rank_run.h>
#include <testing/story.h>

#include <algorithm>
#include <utility>

namespace fsdp {

RankRun::RankRun(const std::vector<RankReport>& ranks, int recorded_as)
    : failure_(describe_failure(ranks)),
      failed_rank_(rank_that_failed(ranks)),
      recorded_as_(recorded_as) {
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
    if (known) place = place_of_call(static_cast<int>(rank), name, *expected[rank]);
  }
  return fsdp::story(steps, place);
}

std::optional<StoryPlace> RankRun::place_of_call(int rank, const std::string& name,
                                                 const nlohmann::json& expected) const {
  std::vector<std::string> steps = steps_.at(rank);
  steps.resize(std::min(observed_after_.at(rank).at(name), steps.size()));
  return fsdp::place_of_call(steps, observations_.at(rank).at(name), expected);
}

int64_t RankRun::calls_before(int rank, size_t step) const {
  const auto& steps = steps_.at(rank);
  return std::count_if(steps.begin(),
                       steps.begin() + static_cast<int64_t>(std::min(step, steps.size())),
                       [](const std::string& one) { return one.starts_with("issues "); });
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
