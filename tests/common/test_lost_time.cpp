#include <gtest/gtest.h>
#include <testing/judge/lost_time.h>

#include <csignal>

#include "expect_text.h"

namespace fsdp {
namespace {

using std::chrono::seconds;

TEST(LostTime, if_runs_of_a_problem_hung_for_60_s_only_the_suites_of_this_problem_are_refused) {
  LostTime lost(seconds(1000));
  lost.add("T4_4_finish", seconds(40));
  EXPECT_EQ(lost.refusal("T4_4_finish"), "");
  lost.add("T4_4_remaining", seconds(20));
  EXPECT_EQ(lost.refusal("T4_4_finish"),
            "not run: earlier runs of this problem did not end, and took 60 s");
  EXPECT_EQ(lost.refusal("T4_3_exactly_once"), "");
  EXPECT_EQ(lost.refusal("T4_40_x"), "");
}

TEST(LostTime, if_runs_of_a_task_hung_for_its_whole_limit_its_later_tests_are_refused) {
  LostTime lost(seconds(20));
  EXPECT_EQ(lost.refusal("T1_1_redirect"), "");
  lost.add("T1_1_redirect", seconds(20));
  EXPECT_EQ(lost.refusal("T1_2_replay"),
            "not run: earlier runs of this task did not end, and took 20 s");
}

TEST(LostTime, hung_runs_of_a_suite_that_belongs_to_no_problem_count_only_against_this_suite) {
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

TEST(LostTime, lost_by_returns_the_time_limit_that_a_hanging_run_reached_and_0_for_a_crash) {
  const std::string vain = "longer than the time limit (CommunicatorOptions::timeout), is stuck";
  EXPECT_EQ(lost_by({ended(0, vain), ended(SIGALRM, "")}, seconds(20)), seconds(20));
  EXPECT_EQ(lost_by({ended(0, vain), ended(SIGKILL, "")}, seconds(20)), kWait);
  EXPECT_EQ(lost_by({ended(SIGSEGV, "the weight is 3"), ended(0, "")}, seconds(20)), seconds(0));
}

}  // namespace
}  // namespace fsdp
