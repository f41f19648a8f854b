#include <check/score.h>
#include <gtest/gtest.h>

#include <map>

namespace fsdp {
namespace {

TEST(Score, each_test_of_a_problem_has_an_equal_part_of_the_problems_points) {
  const Problem problem{"2.3", "unshard", 6, {"T2_3_unshard"}};
  const std::vector<TestResult> results{{"T2_3_unshard", "a", Outcome::passed},
                                        {"T2_3_unshard", "b", Outcome::failed},
                                        {"T2_3_unshard", "c", Outcome::not_started},
                                        {"T2_4_reshard", "d", Outcome::passed}};
  const Tally sum = tally(problem, results);
  EXPECT_EQ(sum.points, 2);
  EXPECT_EQ(sum.tests(), 3);
  EXPECT_FALSE(sum.complete());
  std::vector<TestResult> one_of_many(100, results[0]);
  one_of_many[0].outcome = Outcome::failed;
  EXPECT_EQ(tally(problem, one_of_many).points, 5.5)
      << "a failed test must cost at least half a point";
  EXPECT_EQ(tally(problem, {{"T2_3_unshard", "a", Outcome::skipped}}).failed, 1);
}

// Returns the results of a sentinel, which is the test that withholds a task's points if it fails,
// on these numbers of ranks.
std::vector<TestResult> sentinel(const std::map<int, Outcome>& outcomes) {
  std::vector<TestResult> results;
  for (const auto& [ranks, outcome] : outcomes)
    results.push_back({"T2_2_shard", "only_a_part/W" + std::to_string(ranks), outcome});
  return results;
}

TEST(Score,
     if_a_sentinel_test_passes_in_none_of_its_runs_on_several_ranks_its_task_gets_no_points) {
  const Task task{2, "flat_parameter", "T2_2_shard.only_a_part", {}};
  constexpr Outcome kPassed = Outcome::passed;
  for (const Outcome wrong : {Outcome::failed, Outcome::not_started, Outcome::skipped}) {
    EXPECT_TRUE(sentinel_fails(task, sentinel({{1, kPassed}, {2, wrong}, {3, wrong}})));
    EXPECT_TRUE(sentinel_fails(task, sentinel({{6, wrong}})));
    EXPECT_FALSE(sentinel_fails(task, sentinel({{1, wrong}, {2, wrong}, {3, kPassed}})));
    EXPECT_FALSE(sentinel_fails(task, sentinel({{1, wrong}})))
        << "a failure on one rank only must not withhold points";
  }
  EXPECT_FALSE(sentinel_fails(task, {}));
  EXPECT_TRUE(sentinel_fails(task, {{"T2_2_shard", "only_a_part", Outcome::failed}}))
      << "a sentinel without a number of ranks, as in task 1";
  EXPECT_FALSE(sentinel_fails(task, {{"T2_2_shard", "only_a_part", Outcome::passed}}));
  EXPECT_FALSE(sentinel_fails(task, {{"T2_2_shard", "another/W2", Outcome::failed}}));
}

TEST(Score, check_shows_the_first_failed_test_and_its_failure_on_several_ranks_if_there_is_one) {
  std::vector<TestResult> results{{"T2_4_reshard", "a/W2", Outcome::failed},
                                  {"T2_1_layout", "b/W1", Outcome::passed},
                                  {"T2_3_unshard", "c/W1", Outcome::failed},
                                  {"T2_3_unshard", "c/W2", Outcome::failed},
                                  {"T2_3_unshard", "c/W3", Outcome::failed}};
  sort_by_suite(results);
  EXPECT_EQ(telling_failure(results)->name, "c/W2");
  results.resize(2);  // keeps the results of b/W1 and c/W1
  EXPECT_EQ(telling_failure(results)->name, "c/W1");
  results.resize(1);
  EXPECT_EQ(telling_failure(results), nullptr);
  results = {{"T5_1_state", "a/W2", Outcome::failed},
             {"T5_1_step_on_shards", "b/W2", Outcome::failed}};
  sort_by_suite(results);
  EXPECT_EQ(telling_failure(results)->name, "b/W2");
}

}  // namespace
}  // namespace fsdp
