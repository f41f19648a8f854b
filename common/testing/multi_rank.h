#pragma once

#include <gtest/gtest.h>
#include <testing/expectations.h>
#include <testing/judge/cases.h>
#include <testing/test_rank.h>

#include <functional>
#include <vector>

// Tests whose code runs on `world_size` ranks, each a forked process. Ranks send observations to
// the test's own process, which compares them. That process runs no PyTorch operator. So an
// expected value that needs PyTorch is an observation too: one rank computes it in run_oracle().
//
//   MULTI_RANK_SUITE(T2_3_unshard);
//
//   MULTI_RANK_TEST(T2_3_unshard, gathers_with_one_collective) {
//     const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
//       ...
//       rank.observe("collectives", rank.communicator()->take_log().size());
//       rank.observe("weight", unit.parameter("weight"));
//     });
//     expect_on_all_ranks(run, "collectives", 1);
//     expect_same_on_all_ranks(run, "weight");
//   }
namespace fsdp {

using RankBody = std::function<void(TestRank&)>;

// Runs `body` on `world_size` ranks. Every rank must reach the end of `body` within the time limit.
// When a rank fails, the other ranks are ended. Then run_ranks() ends the test as failed and prints
// the reason. If a rank reached a todo(), run_ranks() ends the test as "not started", whatever else
// happened.
RankRun run_ranks(int world_size, const RankBody& body, const RunOptions& options = {},
                  const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Runs `body` on one rank, to compute the values with which the observations of run_ranks() are
// compared. `body` must not call the student's code: during grading it runs in the judge
// (judge/remote_ranks.h), which does not contain that code.
RankRun run_oracle(const RankBody& body, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE());

// Runs `body` on `world_size` ranks as run_ranks() does, but a rank that fails does not end the
// test. RankRun::failure() describes the failure.
RankRun try_ranks(int world_size, const RankBody& body, const RunOptions& options = {},
                  const char* file = __builtin_FILE(), int line = __builtin_LINE());

// The base class of suites whose tests run once for each world size of the suite, as
// T2_3_unshard.unshard_changes_no_version_counter/W3.
//
// MultiRankTest does not use GoogleTest's TEST_P, whose templates take longer to compile than many
// tests.
class MultiRankTest : public testing::Test {
 public:
  // Registers the tests SUITE.NAME/W1, /W2, ..., one for each of `world_sizes`. `make` creates the
  // object of a test.
  static bool add(const char* suite, const char* name, const std::vector<int>& world_sizes,
                  MultiRankTest* (*make)(), const char* file, int line);

 protected:
  static int world_size();  // number of ranks of the running test
};
#define MULTI_RANK_SUITE(suite) MULTI_RANK_SUITE_ON(suite, 1, 2, 3, 4)
#define MULTI_RANK_SUITE_ON(suite, ...)                       \
  class suite : public fsdp::MultiRankTest {                  \
   public:                                                    \
    static std::vector<int> sizes() { return {__VA_ARGS__}; } \
  }
#define MULTI_RANK_TEST(suite, name)                                                           \
  class suite##_##name##_Test : public suite {                                                 \
    void TestBody() override;                                                                  \
  };                                                                                           \
  [[maybe_unused]] const bool suite##_##name##_added = fsdp::MultiRankTest::add(               \
      #suite, #name, suite::sizes(),                                                           \
      []() -> fsdp::MultiRankTest* { return new suite##_##name##_Test; }, __FILE__, __LINE__); \
  void suite##_##name##_Test::TestBody()

}  // namespace fsdp
