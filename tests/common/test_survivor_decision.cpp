#include <gtest/gtest.h>
#include <hosts/survivor_decision.h>
#include <launch/hosts.h>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

// Returns the decision of a run on three hosts of two ranks each, which any even number of ranks
// can continue. `said` has the lines that the ranks wrote, in the format of decision(). `since` is
// the time since the process of rank 0 began to decide.
std::optional<Decision> given(const std::string& said, std::chrono::milliseconds since) {
  Hosts hosts;
  hosts.of_rank = {0, 0, 1, 1, 2, 2};
  hosts.names = {"a", "b", "c"};
  return decision(said, hosts, since, 60s, [](int ranks) { return ranks / 2 * 2; });
}

const std::string kOfA = "0 left 7 7\n1 left 7 8\n", kOfB = "2 left 8 8\n3 left 7 8\n";

TEST(SurvivorDecision,
     the_run_resumes_after_an_update_that_only_one_surviving_rank_made_for_certain) {
  const auto found = given("0 left 7 8\n1 left 7 8\n" + kOfB, 3s);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, Decision::Kind::resume);
  EXPECT_EQ(found->steps, 8);
  EXPECT_EQ(found->ranks, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(Decision::of(found->text()).ranks, found->ranks);
}

TEST(SurvivorDecision, the_run_repeats_an_update_that_only_ranks_of_a_lost_host_made) {
  const auto found = given(kOfA + "2 left 8 8\n3 out\n", 3s);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->steps, 7);
  EXPECT_EQ(found->ranks, (std::vector<int>{0, 1}));
}

TEST(SurvivorDecision, survivors_wait_longer_for_a_host_that_answered_than_for_a_silent_one) {
  EXPECT_FALSE(given(kOfA + kOfB, 1s));
  EXPECT_FALSE(given(kOfA + "2 here\n3 left 7 7\n", 60s));
  EXPECT_EQ(given(kOfA + "2 here\n3 left 7 7\n", 100s)->ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(given(kOfA + "2 here\n", 3s)->ranks, (std::vector<int>{0, 1}));
}

TEST(SurvivorDecision,
     a_run_fails_if_rank_0_is_lost_or_no_host_is_lost_or_a_survivor_lacks_a_saved_state) {
  EXPECT_EQ(given("0 out\n", 0s)->kind, Decision::Kind::fail);
  // Rank 0 has saved only the state after 7 steps, rank 2 only the state after 8 steps.
  EXPECT_EQ(given(kOfA + kOfB, 3s)->kind, Decision::Kind::fail);
  // Every rank has answered, so no host is lost and the failure has another cause.
  EXPECT_EQ(
      given("0 left 7 7\n1 left 7 7\n2 left 7 7\n3 left 7 7\n4 left 7 7\n5 left 7 7\n", 3s)->kind,
      Decision::Kind::fail);
}

TEST(SurvivorDecision, the_decision_is_done_if_one_rank_reports_that_it_has_finished_the_run) {
  EXPECT_EQ(given(kOfA + "2 done\n", 0s)->kind, Decision::Kind::done);
}

}  // namespace
}  // namespace fsdp
