#include <gtest/gtest.h>
#include <testing/judge/lost_time.h>

#include <csignal>

#include "expect_text.h"

namespace fsdp {
namespace {

using std::chrono::seconds;

TEST(LostTime, suites_of_one_problem_share_a_limit_of_lost_time_and_other_problems_still_run) {
  LostTime lost(seconds(1000));
  lost.add("T4_4_finish", seconds(40));
  EXPECT_EQ(lost.refusal("T4_4_finish"), "");
  lost.add("T4_4_remaining", seconds(20));
  EXPECT_EQ(lost.refusal("T4_4_finish"),
            "not run: earlier runs of this problem did not end, and took 60 s");
  EXPECT_EQ(lost.refusal("T4_3_exactly_once"), "");
  EXPECT_EQ(lost.refusal("T4_40_x"), "");
}

TEST(LostTime, no_test_of_a_task_runs_after_its_problems_together_lost_too_much_time) {
  LostTime lost(seconds(20));
  EXPECT_EQ(lost.refusal("T1_1_redirect"), "");
  lost.add("T1_1_redirect", seconds(20));
  EXPECT_EQ(lost.refusal("T1_2_replay"),
            "not run: earlier runs of this task did not end, and took 20 s");
}

TEST(LostTime, a_suite_that_belongs_to_no_problem_has_its_own_limit_of_lost_time) {
  LostTime lost(seconds(1000));
  lost.add("Judged", seconds(60));
  EXPECT_CONTAINS(lost.refusal("Judged"), "did not end");
  EXPECT_EQ(lost.refusal("Results"), "");
}

RankReport ended(int signal, const std::string& message) {
  RankReport report;
  report.exit.signal = signal;
  report.exit.message = message;
  return report;
}

TEST(LostTime, a_run_loses_its_whole_time_limit_or_one_wait_or_no_time) {
  const std::string vain = "longer than the time limit (CommunicatorOptions::timeout), is stuck";
  EXPECT_EQ(lost_by({ended(0, vain), ended(SIGALRM, "")}, seconds(20)), seconds(20));
  EXPECT_EQ(lost_by({ended(0, vain), ended(SIGKILL, "")}, seconds(20)), kWait);
  EXPECT_EQ(lost_by({ended(SIGSEGV, "the weight is 3"), ended(0, "")}, seconds(20)), seconds(0));
}

}  // namespace
}  // namespace fsdp
