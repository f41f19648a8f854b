#include <testing/multi_rank.h>
#include <testing/story.h>

#include "expect_text.h"
#include "failures_of.h"

using namespace fsdp;

namespace {

TEST(Story, the_story_of_a_failure_has_one_line_per_rank_for_an_event_that_differs_between_ranks) {
  EXPECT_EQ(story({{"a", "b", "d"}, {"a", "c"}}),
            "   1  all     a\n"
            "   2  rank 0  b\n"
            "   2  rank 1  c\n"
            "   3  rank 0  d\n");
}

TEST(Story, the_story_of_a_failure_shows_the_events_around_the_fault_and_the_last_event) {
  EXPECT_EQ(story({{"a", "b", "c", "d", "e", "f", "g"}}, StoryPlace{2, "expected here: x"}, 2),
            "  ...  1 step before these\n"
            "   2  rank 0  b\n"
            "   3  rank 0  c\n"
            "      ^ expected here: x\n"
            "  ...  3 steps between\n"
            "   7  rank 0  g\n");
}

TEST(Story, the_story_of_a_failure_shows_the_first_event_that_differs_between_ranks) {
  const std::vector<std::string> one{"a", "observes \"x\"", "b", "c", "d", "e"};
  EXPECT_EQ(story({one, {"a", "c", "d", "e", "f", "g"}}, {}, 2),
            "   1  all     a\n"
            "   2  rank 0  observes \"x\"\n"
            "   2  rank 1  c\n"
            "  ...  3 steps between\n"
            "   6  rank 0  e\n"
            "   6  rank 1  g\n");
}

TEST(Story, place_of_call_finds_the_first_collective_that_differs_from_the_expected_ones) {
  const std::vector<std::string> steps{"issues all_gather a, 4 bytes",
                                       "issues all_gather a, 4 bytes", "waits for all_gather a",
                                       "issues reduce_scatter b, 4 bytes", "frees a, 4 bytes"};
  const auto place = [&](const nlohmann::json& actual, const nlohmann::json& expected) {
    const auto found = place_of_call(steps, actual, expected);
    return found ? std::to_string(found->step) + ", " + found->remark : "none";
  };
  EXPECT_EQ(place("all_gather a; reduce_scatter b; ", "all_gather b; reduce_scatter b; "),
            "1, expected here: all_gather b");
  EXPECT_EQ(place("a; b; ", "a; c; "), "3, expected here: c");
  EXPECT_EQ(place("a; b; ", "a; b; c; "), "3, expected after this: c");
  EXPECT_EQ(place("a; b; ", "a; "), "3, expected no such call here");
  for (const nlohmann::json& other : {nlohmann::json("all_gather x; all_gather y; "),
                                      nlohmann::json(17), nlohmann::json{1, 2}, nlohmann::json("")})
    EXPECT_EQ(place(other, "a; b; "), "none");
  EXPECT_EQ(place("a; b; ", "a; b; "), "none");
}

TEST(Story, the_story_of_a_failure_marks_the_first_collective_that_was_not_expected) {
  const RankRun run = run_ranks(2, [](TestRank& rank) {
    for (int layer = 0; layer < 30; ++layer)
      rank.communicator()->barrier("layers." + std::to_string(layer)).wait();
    std::string calls;
    for (const Call& call : rank.communicator()->take_log())
      calls += call.name() + "; ";
    rank.observe("calls", calls);
  });
  auto expected = run.at(0, "calls").get<std::string>();
  expected.replace(expected.find("layers.3;"), 9, "layers.4;");
  const std::string text = failures_of([&] { expect_on_all_ranks(run, "calls", expected); });
  EXPECT_CONTAINS(text,
                  "   7  all     issues barrier layers.3, 0 bytes\n"
                  "      ^ expected here: barrier layers.4\n");
  EXPECT_CONTAINS(text, "  61  all     observes \"calls\"\n");
  EXPECT_CONTAINS(text,
                  "part 4 is \"barrier layers.3\", expected \"barrier layers.4\"; the whole is ");
}

TEST(Story, the_story_ends_at_the_observation_that_failed_and_is_printed_once_per_test) {
  const RankRun run = run_ranks(2, [](TestRank& rank) {
    at::Tensor whole = at::empty({2});
    rank.communicator()->all_gather_into(whole, at::zeros({1}), "layers.0").wait();
    rank.observe("storage", 4096);
    rank.observe("later", 1);
    rank.communicator()->barrier("layers.1").wait();
  });
  const std::string text = failures_of([&] {
    expect_on_all_ranks(run, "storage", 0);
    expect_on_all_ranks(run, "later", 2);
  });
  EXPECT_CONTAINS(text,
                  "   1  all     issues all_gather layers.0, 4 bytes\n"
                  "   2  all     waits for all_gather layers.0\n"
                  "   3  all     observes \"storage\"\n"
                  "\"storage\"\n  ranks 0, 1: is 4096, expected 0");
  EXPECT_CONTAINS(text, "\"later\"\n  ranks 0, 1: is 1, expected 2");
  EXPECT_LACKS(text, "layers.1");
  EXPECT_EQ(text.find("issues"), text.rfind("issues")) << text;
}

}  // namespace
