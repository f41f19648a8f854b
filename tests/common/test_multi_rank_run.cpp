#include <base/torch.h>
#include <testing/multi_rank.h>

#include <vector>

using namespace fsdp;

MULTI_RANK_SUITE(MultiRankRun);

MULTI_RANK_TEST(MultiRankRun, the_test_receives_the_values_and_tensors_that_each_rank_observed) {
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
