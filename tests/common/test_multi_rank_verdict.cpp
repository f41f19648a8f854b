#include <base/todo.h>
#include <testing/multi_rank.h>

#include <functional>
#include <vector>

#include "expect_text.h"
#include "failures_of.h"
#include "next_run.h"

using namespace fsdp;

TEST(MultiRankVerdict, a_test_in_which_a_rank_reaches_a_todo_counts_as_not_started) {
  const std::vector<std::function<void()>> consequences{
      [] { EXPECT_ANY_THROW(todo("unshard", "2.3")); },
      [] { EXPECT_NO_THROW(todo("unshard", "2.3")); },
      [] { todo("unshard", "2.3"); },
      []() noexcept { todo("unshard", "2.3"); },
  };
  for (const auto& consequence : consequences) {
    bool continued = false;
    const auto result = result_of([&] {
      run_ranks(2, [&](TestRank& rank) {
        if (rank.rank() == 1) consequence();
      });
      continued = true;
    });
    EXPECT_FALSE(continued);
    ASSERT_EQ(result.size(), 1U);
    EXPECT_TRUE(result[0].skipped());
    EXPECT_CONTAINS(std::string(result[0].message()), "not started: unshard (problem 2.3)");
  }
  expect_next_run_works();
}

TEST(MultiRankVerdict, reading_a_value_that_was_not_observed_fails_the_test) {
  const std::string text = failure_of([] {
    const RankRun run = run_ranks(1, [](TestRank& rank) { rank.observe("norm", 1.5); });
    static_cast<void>(run.at(0, "nrom"));
  });
  EXPECT_CONTAINS(text, "rank 0 did not observe \"nrom\". It observed only:\n  \"norm\"");
}
