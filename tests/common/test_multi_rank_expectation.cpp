#include <base/torch.h>
#include <testing/multi_rank.h>

#include <cmath>
#include <stdexcept>

#include "expect_text.h"
#include "failures_of.h"

using namespace fsdp;

TEST(MultiRankExpectation,
     a_failed_expectation_shows_the_values_of_all_ranks_and_equal_values_once) {
  const RankRun run =
      run_ranks(3, [](TestRank& rank) { rank.observe("live bytes", rank.rank() == 1 ? 4096 : 0); });
  const std::string table = "\"live bytes\"\n  ranks 0, 2: 0\n  rank 1: is 4096, expected 0";
  EXPECT_CONTAINS(failure_of([&] { expect_on_all_ranks(run, "live bytes", 0); }), table);
  EXPECT_CONTAINS(failure_of([&] { expect_same_on_all_ranks(run, "live bytes"); }), table);
  EXPECT_CONTAINS(failure_of([&] { expect_on_rank(run, 1, "live bytes", 0); }), table);
  EXPECT_TRUE(result_of([&] { expect_on_rank(run, 2, "live bytes", 0); }).empty());
}

TEST(MultiRankExpectation, expect_error_checks_the_type_and_the_words_of_an_exception) {
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

TEST(MultiRankExpectation, a_failed_expectation_names_the_rank_and_the_member_that_differ) {
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

TEST(MultiRankExpectation, expectations_compare_tensors_bit_by_bit_and_describe_differences) {
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
