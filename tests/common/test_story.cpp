#include <base/torch.h>
#include <memory/live_bytes.h>
#include <testing/error_text.h>
#include <testing/memory_limit.h>
#include <testing/multi_rank.h>
#include <testing/provenance.h>
#include <testing/ratio.h>
#include <testing/story.h>

#include <unordered_map>

#include "expect_text.h"
#include "failures_of.h"
#include "in_a_process.h"

using namespace fsdp;

namespace {

// Weight [3, 5], an empty parameter, and bias [2] in a flat tensor of 48, of which each of three
// ranks owns 16.
Places places_of_rank(int rank) {
  return {{{"weight", {3, 5}, 0}, {"none", {0, 4}, 32}, {"bias", {2}, 32}}, 16, 16L * rank};
}

TEST(Story, has_one_line_per_rank_if_ranks_differ) {
  EXPECT_EQ(story({{"a", "b", "d"}, {"a", "c"}}),
            "   1  all     a\n"
            "   2  rank 0  b\n"
            "   2  rank 1  c\n"
            "   3  rank 0  d\n");
}

TEST(Story, shows_the_steps_around_the_place_where_it_goes_wrong_and_the_last_one) {
  EXPECT_EQ(story({{"a", "b", "c", "d", "e", "f", "g"}}, StoryPlace{2, "expected here: x"}, 2),
            "  ...  1 step before these\n"
            "   2  rank 0  b\n"
            "   3  rank 0  c\n"
            "      ^ expected here: x\n"
            "  ...  3 steps between\n"
            "   7  rank 0  g\n");
}

TEST(Story, shows_where_ranks_first_do_something_else) {
  const std::vector<std::string> one{"a", "observes \"x\"", "b", "c", "d", "e"};
  EXPECT_EQ(story({one, {"a", "c", "d", "e", "f", "g"}}, {}, 2),
            "   1  all     a\n"
            "   2  rank 0  observes \"x\"\n"
            "   2  rank 1  c\n"
            "  ...  3 steps between\n"
            "   6  rank 0  e\n"
            "   6  rank 1  g\n");
}

TEST(Story, finds_the_first_call_that_is_not_the_expected_one) {
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

TEST(Story, of_a_list_of_calls_shows_the_call_that_differs) {
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

TEST(Story, ends_at_the_violated_expectation_and_is_printed_once) {
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

TEST(Places, name_the_parameter_and_the_owner_of_an_element) {
  EXPECT_EQ(places_of_rank(0).text(7), "weight[1, 2], which rank 0 owns");
  EXPECT_EQ(places_of_rank(0).text(15), "padding after weight, which rank 0 owns");
  EXPECT_EQ(places_of_rank(1).text(0), "padding after weight, which rank 1 owns");
  EXPECT_EQ(places_of_rank(2).text(1), "bias[1], which rank 2 owns");
  EXPECT_EQ(places_of_rank(2).text(2), "padding after bias, which rank 2 owns");
}

TEST(Places, are_printed_with_the_first_wrong_element) {
  const RankRun run = run_ranks(3, [](TestRank& rank) {
    at::Tensor shard = at::zeros({16});
    rank.observe("expected", shard);
    if (rank.rank() == 2) shard[1] = 7;
    rank.observe("shard", shard, places_of_rank(rank.rank()));
  });
  EXPECT_CONTAINS(failures_of([&] { expect_on_rank(run, 2, "shard", run.at(2, "expected")); }),
                  "the first at [1] (bias[1], which rank 2 owns): is 7, expected 0");
}

TEST(Provenance, says_which_ranks_a_mean_is_made_of) {
  const auto mean_of = [](const std::vector<int>& ranks, int world_size) {
    double sum = 0;
    for (const int rank : ranks)
      sum += static_cast<double>(provenance::gradient(rank, world_size));
    return sum / world_size;
  };
  const auto mean = [](int world_size) {
    return static_cast<double>(provenance::mean(world_size));
  };
  for (int world_size = 1; world_size <= 8; ++world_size)
    EXPECT_EQ(provenance::decode(mean(world_size), world_size), "");
  EXPECT_EQ(provenance::decode(mean(2) * 2, 2),
            "the sum, not the mean: exactly 2 times too large, as with a division by W - 1");
  EXPECT_EQ(provenance::decode(mean(8) * 8, 8), "the sum, not the mean: exactly 8 times too large");
  EXPECT_EQ(provenance::decode(mean(3) / 3, 3), "divided by W twice: exactly 3 times too small");
  EXPECT_EQ(provenance::decode(mean_of({0, 1}, 3), 3), "rank 2's gradient is missing");
  EXPECT_EQ(provenance::decode(mean_of({0, 0, 1, 2}, 3), 3), "rank 0 is counted twice");
  EXPECT_EQ(provenance::decode(mean_of({0, 2, 2, 2}, 3), 3),
            "rank 1's gradient is missing, rank 2 is counted 3 times");
  EXPECT_EQ(provenance::decode(4 * mean_of({2}, 4), 4),
            "rank 0's gradient is missing, rank 1's gradient is missing, rank 3's gradient is "
            "missing, and it is the sum, not the mean");
  // As a float, which is what a gradient is.
  EXPECT_EQ(provenance::decode(static_cast<float>(mean(7)) * 7 / 6, 7),
            "every rank is counted once, but the sum is divided by 6, not by W = 7");
  EXPECT_CONTAINS(provenance::decode(0, 3), "no rank's gradient is in it: none was collected ");
  EXPECT_EQ(provenance::decode(0.3, 3), "no sum of the ranks' gradients gives it");
  EXPECT_EQ(provenance::decode(NAN, 3), "no sum of the ranks' gradients gives it");
}

TEST(Provenance, is_checked_in_all_elements_of_the_shard_and_padding_must_be_zero) {
  const auto mean = static_cast<double>(provenance::mean(3));
  const auto observe = [](TestRank& rank, const std::string& name, double weight, double padding) {
    const Places places = places_of_rank(rank.rank());
    at::Tensor shard = at::full({16}, padding);
    for (int64_t i = 0; i < 16; ++i) {
      if (places.in_parameter(i)) shard[i] = weight;
    }
    rank.observe(name, shard, places);
  };
  const RankRun run = run_ranks(3, [&](TestRank& rank) {
    observe(rank, "right", mean, 0);
    observe(rank, "sum", 3 * mean, 0);
    observe(rank, "padded", mean, 1);
    rank.observe("nothing", at::zeros({0}), places_of_rank(rank.rank()));
    rank.observe("padding alone", at::zeros({16}), {{}, 16, 0});
  });
  const auto told = [&](const std::string& name) {
    return failures_of([&] { expect_mean_over_ranks(run, name, places_of_rank); });
  };
  EXPECT_EQ(told("right"), "");
  EXPECT_CONTAINS(told("sum"),
                  "rank 0: weight[0, 0], which rank 0 owns: is 93, expected 31: the sum, not the "
                  "mean: exactly 3 times too large");
  EXPECT_CONTAINS(told("padded"),
                  "padding after weight, which rank 1 owns: is 1, expected 0: padding is not zero");
  EXPECT_CONTAINS(told("nothing"), "ranks 0, 1, 2: has 0 elements, expected 16");
  EXPECT_CONTAINS(told("padding alone"),
                  "rank 0: weight[0, 0], which rank 0 owns: is 0, expected 31");
}

// torch's error for an undefined tensor, with and without the stack that it adds.
std::string error_of_torch(bool with_stack) {
  try {
    at::Tensor().storage();
  } catch (const c10::Error& error) {
    return with_stack ? error.what() : error.what_without_backtrace();
  }
  return "nothing was thrown";
}

TEST(ErrorText, has_no_stack_of_torch) {
  in_a_process([] {
    const std::string whole = error_of_torch(true), said = error_of_torch(false);
    EXPECT_CONTAINS(whole, "frame #1");
    EXPECT_EQ(without_stacks(whole), said + "\n");
    EXPECT_EQ(without_stacks("it throws \"" + whole + "\".\nafter"),
              "it throws \"" + said + "\n\".\nafter");
  });
  EXPECT_EQ(without_stacks("frame #0: of a picture\n"), "frame #0: of a picture\n");
}

TEST(ErrorText, in_a_rank_has_no_stack_either_and_says_what_it_means) {
  const auto failure = [](const std::function<void()>& body) {
    return try_ranks(1, [&](TestRank&) { body(); }).failure();
  };
  const std::string text =
      failure([] { EXPECT_NO_THROW(static_cast<void>(at::Tensor().storage())); });
  EXPECT_CONTAINS(text, "UndefinedTensorImpl");
  EXPECT_CONTAINS(text, "rank 0 threw an exception: a tensor was used that is not defined");
  EXPECT_LACKS(text, "frame #");
  EXPECT_CONTAINS(failure([] { static_cast<void>(std::unordered_map<int, int>().at(3)); }),
                  "asked for something that was never put into the map");
}

TEST(ErrorText, says_of_memory_that_was_freed_what_it_means_and_gives_no_advice_of_torch) {
  const RankRun run = try_ranks(1, [](TestRank&) {
    const at::Tensor tensor = at::empty({4});
    tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
        c10::DataPtr(nullptr, at::Device(at::kCPU)));
    static_cast<void>(tensor.data_ptr<float>());
  });
  EXPECT_CONTAINS(run.failure(),
                  "threw an exception: a parameter was used after reshard(), or before unshard()\n"
                  "  (it says: The tensor has a non-zero number of elements, but its data is not "
                  "allocated yet.)");
  EXPECT_LACKS(run.failure(), "Caffe2");
}

TEST(ErrorText, says_what_bad_weak_ptr_means) {
  struct Object : std::enable_shared_from_this<Object> {};
  const RankRun run = try_ranks(1, [](TestRank&) { Object().shared_from_this(); });
  EXPECT_CONTAINS(run.failure(), "shared_from_this() was called on an object that no shared_ptr ");
  EXPECT_CONTAINS(run.failure(), "(it says: bad_weak_ptr)");
}

// What each of some ranks says to have taken.
RankRun taken_by(int world_size, int64_t tensors, int64_t besides) {
  return run_ranks(world_size, [=](TestRank& rank) {
    rank.observe("held", nlohmann::json{{"tensors", tensors}, {"besides", besides}});
  });
}

TEST(Part, of_the_whole_is_less_than_it_on_two_ranks_and_nearly_all_of_it_on_all_together) {
  const auto told = [](int world_size, int64_t tensors, int64_t besides, int64_t whole) {
    const RankRun run = taken_by(world_size, tensors, besides);
    return failures_of([&] { expect_part_of(run, "held", whole); });
  };
  EXPECT_EQ(told(1, 40, 24, 40), "");
  EXPECT_EQ(told(2, 40, 24, 65), "");
  EXPECT_CONTAINS(told(2, 40, 24, 64),
                  "\"held\"\n  ranks 0, 1: holds 64 bytes in tensors and besides, expected fewer "
                  "than 64: a part of the whole");
  EXPECT_CONTAINS(told(1, 0, 0, 64), "all ranks: hold 0 bytes");
  EXPECT_EQ(told(2, 28, 0, 64), "");
  EXPECT_CONTAINS(told(2, 27, 0, 64),
                  "ranks 0, 1: holds 27 bytes in tensors\n  all ranks: hold 54 bytes in tensors, "
                  "expected at least 56: together the ranks hold the whole");
}

TEST(Part, that_others_own_is_held_nowhere_on_two_ranks) {
  const auto told = [](int world_size, int64_t besides) {
    const RankRun run = taken_by(world_size, 1000, besides);
    return failures_of([&] {
      expect_no_copies(run, "held", 64);
      expect_no_copies(run, "what no rank has observed", 64);
    });
  };
  EXPECT_EQ(told(1, 64), "");
  EXPECT_EQ(told(2, 24), "");
  EXPECT_CONTAINS(
      told(2, 32),
      "ranks 0, 1: holds 32 bytes besides tensors, expected fewer than 25: no copy of what "
      "other ranks own, in whatever memory");
}

TEST(Ratio, is_a_fraction_of_small_numbers) {
  EXPECT_EQ(ratio_in_words({3, 0, 1.5}, {2, 0, 1}),
            "every element is exactly 3/2 times the expected one");
  EXPECT_EQ(ratio_in_words({0.1 * 4 / 3, 0.7 * 4 / 3}, {0.1F, 0.7F}),
            "every element is about 4/3 times the expected one");
  EXPECT_EQ(ratio_in_words({3.14159, 2 * 3.14159}, {1, 2}),
            "every element is about 3.14159 times the expected one");
  EXPECT_CONTAINS(ratio_in_words({0, 0}, {1, 2}), "every element is 0: what brings the values ");
  EXPECT_EQ(ratio_in_words({0}, {1}), "it is 0");
  EXPECT_EQ(ratio_in_words({1, 2}, {1, 3}), "");
  EXPECT_EQ(ratio_in_words({1, 2}, {0, 3}), "");
}

TEST(Ratio, of_last_bits_is_called_rounding) {
  EXPECT_CONTAINS(ratio_in_words({0.1F * (1 / 3.F), 5 * (1 / 3.F)}, {0.1F / 3, 5 / 3.F}),
                  "every element is right but for its rounding");
  EXPECT_CONTAINS(difference(3.0000001, 3.0), "it is right but for its rounding");
  EXPECT_EQ(difference(6.0, 3.0), "is 6.0, expected 3.0; it is exactly 2 times the expected one");
}

TEST(Crash, runaway_allocation_is_reported_as_such) {
  const RankRun run = try_ranks(1, [](TestRank&) {
    ASSERT_TRUE(limit_memory(int64_t{1} << 30)) << "not under a sanitizer";
    std::vector<at::Tensor> all;
    for (;;)
      all.push_back(at::zeros({int64_t{1} << 26}));
  });
  if (run.failure().find("not under a sanitizer") != std::string::npos) {
    GTEST_SKIP() << "a sanitizer's memory has no limit";
  }
  EXPECT_CONTAINS(run.failure(), "it exceeded the limit of memory of a test");
}

}  // namespace
