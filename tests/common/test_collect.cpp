#include <base/torch.h>
#include <comm/communicator.h>
#include <launch/collect.h>
#include <testing/multi_rank.h>

#include <stdexcept>

#include "expect_text.h"
#include "limit_file_size.h"
#include "torchrun.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(Collect);

MULTI_RANK_TEST(Collect, collect_returns_what_the_body_returned_on_each_rank) {
  const auto texts = collect(world_size(), [](const RankContext& context) {
    auto comm = Communicator::create(context);
    const at::Tensor sum = at::full({1}, context.rank + 1.0);
    comm->all_reduce(sum, "sum").wait();
    return std::to_string(context.rank) + " of " + std::to_string(sum.item<double>());
  });
  ASSERT_EQ(texts.size(), static_cast<size_t>(world_size()));
  const double sum = world_size() * (world_size() + 1) / 2.0;
  for (int rank = 0; rank < world_size(); ++rank)
    EXPECT_EQ(texts[static_cast<size_t>(rank)],
              std::to_string(rank) + " of " + std::to_string(sum));
}

TEST(CollectFunction, collect_returns_results_that_are_empty_binary_or_large) {
  const auto texts = collect(3, [](const RankContext& context) -> std::string {
    if (context.rank == 0) return "";
    if (context.rank == 1) return std::string("a\0b", 3);
    std::string many;
    return many.append(50'000'000, 'x');
  });
  EXPECT_EQ(texts[0], "");
  EXPECT_EQ(texts[1], std::string("a\0b", 3));
  EXPECT_EQ(texts[2].size(), 50'000'000U);
  EXPECT_EQ(texts[2].find_first_not_of('x'), std::string::npos);
}

TEST(CollectFunction, collect_throws_the_error_of_a_rank_that_failed) {
  const auto story = [](const std::function<std::string(const RankContext&)>& body) {
    return error_of<std::runtime_error>([&] { collect(2, body); });
  };
  EXPECT_EQ(story([](const RankContext& context) -> std::string {
              if (context.rank == 1) throw std::runtime_error("no such unit");
              return "";
            }),
            "rank 1 failed: no such unit");
  EXPECT_EQ(story([](const RankContext& context) {
              if (context.rank == 0) limit_file_size(100);
              return std::string(1000, 'x');
            }),
            "rank 0 failed: cannot store the result of 1000 bytes: File too large");
}

TEST(CollectFunction, collect_throws_in_a_process_that_torchrun_started) {
  const SetVariables set(torchrun_variables(0, 2, 29500));
  EXPECT_CONTAINS(error_of<std::logic_error>(
                      [] { collect(2, [](const RankContext&) { return std::string(); }); }),
                  "collect(): a launcher (torchrun, mpirun or srun) has started this process");
}

}  // namespace
}  // namespace fsdp
