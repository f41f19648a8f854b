#include <launch/rank_exit.h>
#include <poll.h>
#include <testing/multi_rank.h>
#include <testing/rank_report.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>

#include "expect_text.h"
#include "next_run.h"
#include "shared_words.h"

using namespace fsdp;

namespace {

// Runs three ranks, each of which observes a value. Then rank 1 ends by `leave`, while the others
// wait for ever. Returns the failure that the test's process reports.
std::string failure_when_rank_1(const std::function<void()>& leave) {
  SharedWords observed;
  const RankRun run = try_ranks(3, [&](TestRank& rank) {
    rank.observe("before", rank.rank());
    ++observed[0];
    if (rank.rank() == 1) {
      wait_until(observed[0], 3);
      leave();
    }
    for (;;)
      pause();
  });
  EXPECT_EQ(run.at(1, "before"), 1) << "what was sent before the end is kept";
  EXPECT_CONTAINS(run.failure(), "rank 1 ");
  EXPECT_CONTAINS(run.failure(), "\"before\"");
  return run.failure();
}

}  // namespace

TEST(MultiRankFailure, the_failure_names_the_signal_or_exception_that_ended_a_rank) {
  const std::string text = failure_when_rank_1([] { *static_cast<volatile int*>(nullptr) = 1; });
  EXPECT_CONTAINS(
      text,
      "rank 1 was killed by signal 11 (Segmentation fault): it used address 0, which is element 0 of");
  EXPECT_CONTAINS(text, "rank 0 was stopped; last observation \"before\"");
  EXPECT_CONTAINS(failure_when_rank_1([] { abort(); }), "rank 1 was killed by signal 6 (Aborted)");
  EXPECT_CONTAINS(failure_when_rank_1([] { throw std::runtime_error("no such unit: layers.9"); }),
                  "rank 1 threw an exception: no such unit: layers.9");
  expect_next_run_works();
}

TEST(MultiRankFailure, if_a_rank_of_a_test_calls_exit_the_test_fails_and_names_the_status) {
  EXPECT_CONTAINS(failure_when_rank_1([] { exit(3); }), "rank 1 left by exit(3) before the end");
  const RankRun run = try_ranks(2, [](TestRank& rank) {
    if (rank.rank() == 1) _exit(0);
  });
  EXPECT_CONTAINS(run.failure(), "rank 1 left by exit(0) before the end of the test");
}

TEST(MultiRankFailure, the_ranks_of_a_test_are_ended_at_the_time_limit_of_the_run) {
  const auto body = [](TestRank& rank) {
    for (volatile bool forever = true; forever && rank.rank() == 1;) {
    }
  };
  const RankRun run = try_ranks(2, body, {.time_limit = std::chrono::seconds(1)});
  EXPECT_CONTAINS(run.failure(), "rank 1 was still running at the time limit");
  EXPECT_CONTAINS(run.failure(), "rank 0 reached the end of the test");
  expect_next_run_works();
}

TEST(MultiRankFailure, every_process_that_a_rank_of_a_test_started_ends_with_the_ranks) {
  int life[2];
  ASSERT_EQ(pipe(life), 0);
  const RankRun run = try_ranks(2, [&](TestRank& rank) {
    if (fork() == 0) {
      alarm(20);  // ends the forked process even if the test fails
      pause();
    }
    if (rank.rank() == 1) abort();
  });
  EXPECT_FALSE(run.failure().empty());
  close(life[1]);
  pollfd end{life[0], POLLIN, 0};
  poll(&end, 1, 5'000);
  EXPECT_TRUE(end.revents & POLLHUP) << "a process still holds the pipe";
  close(life[0]);
}

TEST(MultiRankFailure, a_rank_that_observes_one_name_twice_fails_and_its_first_value_is_kept) {
  const RankRun run = try_ranks(1, [](TestRank& rank) {
    rank.observe("loss", 1);
    rank.observe("loss", 2);
  });
  EXPECT_CONTAINS(run.failure(), "\"loss\" was observed before");
  EXPECT_EQ(run.at(0, "loss"), 1);
}

// TestRank never sends a report that has one value twice, or a value after the end of the test. But
// a student's code could send one, if it found the file of the Channel through which its rank
// reports.
TEST(MultiRankFailure, a_rank_that_reports_a_value_twice_or_after_the_end_of_the_test_fails) {
  const auto told = [](const std::vector<nlohmann::json>& frames) {
    Channel channel;
    for (const nlohmann::json& frame : frames)
      channel.send(frame);
    return RankRun({read_report(RankExit{}, false, channel)}).failure();
  };
  const auto loss = observation_frame("loss", 1, 0), other = observation_frame("other", 1, 0);
  EXPECT_EQ(told({loss, other, finished_frame()}), "");
  EXPECT_CONTAINS(told({loss, other, loss, finished_frame()}), "observed \"loss\" twice");
  EXPECT_CONTAINS(told({loss, finished_frame(), other}), "reported after the end of the test");
}

TEST(MultiRankFailure, an_assertion_that_fails_in_one_rank_ends_all_ranks_of_the_test) {
  const RankRun run = try_ranks(2, [](TestRank& rank) {
    EXPECT_NE(rank.rank(), 1) << "an odd rank";
    for (;;)
      pause();
  });
  EXPECT_CONTAINS(run.failure(), "rank 1 threw an exception: ");
  EXPECT_CONTAINS(run.failure(), "test_multi_rank_failure.cpp:");
  EXPECT_CONTAINS(run.failure(), "an odd rank");
}
