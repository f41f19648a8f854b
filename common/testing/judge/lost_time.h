#pragma once

#include <testing/rank_report.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace fsdp {

// Bounds the time that a judge loses to runs of ranks which do not end, so that code which hangs in
// every test is graded in minutes. A run counts by its limit, not by a clock: on a busy machine the
// same runs count.
class LostTime {
 public:
  // `most`: of all problems together.
  explicit LostTime(std::chrono::seconds most) : most_(most) {}

  // From the environment: FSDP_MOST_LOST_SECONDS, which the grader sets; without it there is no
  // limit of the whole.
  static LostTime from_environment();

  // Why no further run of this suite is tried; empty if it is. The suites of one problem, as
  // T4_4_finish and T4_4_remaining, count together.
  std::string refusal(const std::string& suite) const;

  void add(const std::string& suite, std::chrono::seconds lost);

 private:
  std::chrono::seconds most_;
  std::map<std::string, std::chrono::seconds> of_problem_;
};

// Returns the time that a run has lost: `limit` if a rank was still running at the time limit, or
// kWait if a rank waited for another one in vain.
constexpr std::chrono::seconds kWait{2};
std::chrono::seconds lost_by(const std::vector<RankReport>& ranks, std::chrono::seconds limit);

}  // namespace fsdp
