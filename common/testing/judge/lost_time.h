#pragma once

#include <testing/rank_report.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace fsdp {

// Limits the time that the judge (the grading program that compares observations, remote_ranks.h)
// loses to runs of ranks that do not end, so that code which hangs in every test is graded in
// minutes. Such a run counts with its time limit, not with measured time, so that the result does
// not depend on how busy the machine is.
class LostTime {
 public:
  // `most`: the limit for the time that runs of the suites of all problems together may lose.
  explicit LostTime(std::chrono::seconds most) : most_(most) {}

  // Reads the limit from FSDP_MOST_LOST_SECONDS, which the grader sets. If it is not set, there is
  // no limit for all problems together.
  static LostTime from_environment();

  // Returns the reason why the judge asks for no further run of ranks for the tests of `suite`; ""
  // if it may ask for one. The suites of one problem, such as T4_4_finish and T4_4_remaining, count
  // together.
  std::string refusal(const std::string& suite) const;

  void add(const std::string& suite, std::chrono::seconds lost);

 private:
  std::chrono::seconds most_;
  std::map<std::string, std::chrono::seconds> of_problem_;
};

// Returns the time that a run counts as lost: `limit` if a rank was still running at the time
// limit; else kWait if a collective of a rank timed out; else 0.
constexpr std::chrono::seconds kWait{2};
std::chrono::seconds lost_by(const std::vector<RankReport>& ranks, std::chrono::seconds limit);

}  // namespace fsdp
