#include <base/todo.h>
#include <base/torch.h>
#include <launch/rank_exit.h>
#include <poll.h>
#include <testing/multi_rank.h>
#include <testing/rank_report.h>
#include <unistd.h>

#include <csignal>

#include "expect_text.h"
#include "failures_of.h"
#include "shared_words.h"

using namespace fsdp;

namespace {

// What the test's process learns of a run in which rank 1 ends by `leave`, the others wait for it,
// and every rank has observed something before.
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

// The text of the one failure in a test.
std::string failure_of(const std::function<void()>& test) {
  const auto result = result_of(test);
  EXPECT_EQ(result.size(), 1U);
  if (result.size() != 1) return "";
  EXPECT_TRUE(result[0].failed());
  EXPECT_CONTAINS(std::string(result[0].file_name()), "test_multi_rank.cpp");
  return result[0].message();
}

void expect_next_run_works() {
  const RankRun run =
      run_ranks(2, [](TestRank& rank) { rank.observe("sum", torch::ones(3).sum()); });
  EXPECT_EQ(run.tensor(1, "sum").value(0), 3);
}

}  // namespace

MULTI_RANK_SUITE(MultiRankRun);

MULTI_RANK_TEST(MultiRankRun, delivers_observed_values_and_tensors_to_the_test) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.observe("list", std::vector<double>{0.1, 1e300, static_cast<double>(rank.rank())});
    rank.observe("large", int64_t{1} << 53 | 1);
    rank.observe("rows", torch::arange(12).view({3, 4}).t());
    rank.observe("half", torch::full({2}, 1.5, torch::kHalf));
    rank.observe("none", torch::empty({0, 3}));
    rank.observe("threads of torch", at::get_num_threads());
  });
  expect_on_all_ranks(run, "threads of torch", 1);
  ASSERT_EQ(run.world_size(), world_size());
  for (int r = 0; r < world_size(); ++r) {
    EXPECT_EQ(run.at(r, "list"), (nlohmann::json{0.1, 1e300, r}));
    EXPECT_EQ(run.at(r, "large"), int64_t{1} << 53 | 1);
    EXPECT_EQ(run.tensor(r, "rows").sizes, (std::vector<int64_t>{4, 3}));
    EXPECT_EQ(run.tensor(r, "rows").value(1), 4);
    EXPECT_EQ(run.tensor(r, "half").value(1), 1.5);
    EXPECT_EQ(run.tensor(r, "none").numel(), 0);
  }
}

TEST(MultiRankFailure, names_the_signal_or_exception_that_ended_a_rank) {
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

TEST(MultiRankFailure, reports_a_rank_that_exits_as_a_failure) {
  EXPECT_CONTAINS(failure_when_rank_1([] { exit(3); }), "rank 1 left by exit(3) before the end");
  const RankRun run = try_ranks(2, [](TestRank& rank) {
    if (rank.rank() == 1) _exit(0);
  });
  EXPECT_CONTAINS(run.failure(), "rank 1 left by exit(0) before the end of the test");
}

TEST(MultiRankFailure, ends_a_run_at_its_time_limit) {
  const auto body = [](TestRank& rank) {
    for (volatile bool forever = true; forever && rank.rank() == 1;) {
    }
  };
  const RankRun run = try_ranks(2, body, {.time_limit = std::chrono::seconds(1)});
  EXPECT_CONTAINS(run.failure(), "rank 1 was still running at the time limit");
  EXPECT_CONTAINS(run.failure(), "rank 0 reached the end of the test");
  expect_next_run_works();
}

TEST(MultiRankFailure, ends_every_process_that_a_rank_started) {
  int life[2];
  ASSERT_EQ(pipe(life), 0);
  const RankRun run = try_ranks(2, [&](TestRank& rank) {
    if (fork() == 0) {
      alarm(20);  // the end of it if this test fails
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

TEST(MultiRankFailure, keeps_the_first_value_if_a_rank_observes_a_name_twice) {
  const RankRun run = try_ranks(1, [](TestRank& rank) {
    rank.observe("loss", 1);
    rank.observe("loss", 2);
  });
  EXPECT_CONTAINS(run.failure(), "\"loss\" was observed before");
  EXPECT_EQ(run.at(0, "loss"), 1);
}

// What no rank does, but code that has found the channel's file could.
TEST(MultiRankFailure, is_what_is_reported_twice_or_after_the_end) {
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

TEST(MultiRankFailure, a_failed_assertion_ends_the_run) {
  const RankRun run = try_ranks(2, [](TestRank& rank) {
    EXPECT_NE(rank.rank(), 1) << "an odd rank";
    for (;;)
      pause();
  });
  EXPECT_CONTAINS(run.failure(), "rank 1 threw an exception: ");
  EXPECT_CONTAINS(run.failure(), "test_multi_rank.cpp:");
  EXPECT_CONTAINS(run.failure(), "an odd rank");
}

TEST(MultiRankVerdict, a_rank_that_reaches_a_todo_makes_the_test_not_started) {
  const std::vector<std::function<void()>> consequences{
      [] { EXPECT_ANY_THROW(todo("unshard", "2.3")); },
      [] { EXPECT_NO_THROW(todo("unshard", "2.3")); },
      [] { todo("unshard", "2.3"); },
      []() noexcept { todo("unshard", "2.3"); },
  };
  for (const auto& consequence : consequences) {
    bool went_on = false;
    const auto result = result_of([&] {
      run_ranks(2, [&](TestRank& rank) {
        if (rank.rank() == 1) consequence();
      });
      went_on = true;
    });
    EXPECT_FALSE(went_on);
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

TEST(MultiRankExpectation, shows_all_ranks_and_equal_ones_once) {
  const RankRun run =
      run_ranks(3, [](TestRank& rank) { rank.observe("live bytes", rank.rank() == 1 ? 4096 : 0); });
  const std::string table = "\"live bytes\"\n  ranks 0, 2: 0\n  rank 1: is 4096, expected 0";
  EXPECT_CONTAINS(failure_of([&] { expect_on_all_ranks(run, "live bytes", 0); }), table);
  EXPECT_CONTAINS(failure_of([&] { expect_same_on_all_ranks(run, "live bytes"); }), table);
  EXPECT_CONTAINS(failure_of([&] { expect_on_rank(run, 1, "live bytes", 0); }), table);
  EXPECT_TRUE(result_of([&] { expect_on_rank(run, 2, "live bytes", 0); }).empty());
}

TEST(MultiRankExpectation, looks_for_types_and_words_in_what_was_thrown) {
  const RankRun run = run_ranks(2, [](TestRank& rank) {
    rank.observe("nothing", thrown_by([] {}));
    rank.observe("error", thrown_by([] { throw std::invalid_argument("no unit 7"); }));
  });
  EXPECT_TRUE(result_of([&] { expect_error(run, "error", {"std::logic_error", "7"}); }).empty());
  EXPECT_CONTAINS(failure_of([&] {
                    expect_error(run, "error", {"unit 7", "8"});
                  }),
                  "ranks 0, 1: the error lacks \"8\"; it says: std::invalid_argument, "
                  "std::logic_error: no unit 7");
  EXPECT_CONTAINS(failure_of([&] { expect_error(run, "nothing", {"7"}); }),
                  "ranks 0, 1: nothing was thrown, expected an error with \"7\"");
}

TEST(MultiRankExpectation, compares_each_rank_with_its_own_value_and_objects_by_members) {
  const RankRun run = run_ranks(2, [](TestRank& rank) {
    rank.observe("number", rank.rank());
    rank.observe("tensor", nlohmann::json{{"sizes", {2, 3}}, {"dtype", "Float"}});
  });
  EXPECT_TRUE(result_of([&] {
                expect_on_each_rank(run, "number", [](int rank) { return rank; });
              }).empty());
  EXPECT_CONTAINS(
      failure_of([&] { expect_on_each_rank(run, "number", [](int rank) { return 2 * rank; }); }),
      "rank 0: 0\n  rank 1: is 1, expected 2");
  const nlohmann::json expected{{"sizes", {2, 4}}, {"dtype", "Float"}};
  EXPECT_CONTAINS(failure_of([&] { expect_on_all_ranks(run, "tensor", expected); }),
                  "ranks 0, 1: sizes: is [2,3], expected [2,4]");
}

TEST(MultiRankExpectation, compares_tensors_bit_by_bit_and_says_how_they_differ) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto t = torch::arange(6, torch::kFloat).view({2, 3});
    rank.observe("t", t);
    rank.observe("3 t", 3 * t);
    rank.observe("t / 4", t / 4);
    rank.observe("0 t", 0 * t);
    rank.observe("-0 t", -0.0 * t);
    rank.observe("t backwards", t.flip({0, 1}));
    rank.observe("t with one changed", t.index_fill(1, torch::tensor({2}), 8));
    rank.observe("t with a nan", t.index_fill(1, torch::tensor({2}), -NAN));
    rank.observe("flat", t.view(-1));
    rank.observe("double", t.to(torch::kDouble));
  });
  const auto wrong = [&](const std::string& actual, const std::string& expected) {
    return difference(run.at(0, actual), run.at(0, expected));
  };
  EXPECT_EQ(wrong("t", "t"), "");
  EXPECT_EQ(wrong("3 t", "t"),
            "5 of 6 elements differ, the first at [0, 1]: is 3, expected 1; "
            "every element is exactly 3 times the expected one");
  EXPECT_CONTAINS(wrong("t / 4", "t"), "every element is exactly 1/4 times the expected one");
  EXPECT_CONTAINS(wrong("0 t", "t"), "every element is 0");
  EXPECT_EQ(wrong("-0 t", "0 t"), "6 of 6 elements differ, the first at [0, 0]: is -0, expected 0");
  EXPECT_CONTAINS(wrong("t backwards", "t"), "is 5, expected 0; the right values in another order");
  EXPECT_EQ(wrong("t with one changed", "t"),
            "2 of 6 elements differ, the first at [0, 2]: is 8, expected 2");
  EXPECT_EQ(wrong("t with a nan", "t"),
            "2 of 6 elements differ, the first at [0, 2]: is nan, expected 2; "
            "memory that nobody has written yet, or that was freed, holds nan");
  EXPECT_EQ(wrong("flat", "t"), "is Float [6], expected Float [2, 3]");
  EXPECT_EQ(wrong("double", "t"), "is Double [2, 3], expected Float [2, 3]");
}
