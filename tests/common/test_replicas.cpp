#include <comm/communicator_options.h>
#include <comm/tree_sum.h>
#include <testing/multi_rank.h>
#include <testing/tensor_bits.h>
#include <unistd.h>

#include <numeric>

#include "expect_text.h"
#include "parts.h"

// Tests a communicator for replicas of a model. Each of its collectives runs between the ranks of
// one group, except reduce-scatter, which sums over all ranks in two steps.
namespace fsdp {
namespace {

using namespace std::chrono_literals;

// The parameter of each test is a backend and the sizes {R, G}: R replicas of G ranks each.
class HybridCommunicator
    : public testing::TestWithParam<std::tuple<std::string, std::pair<int, int>>> {
 protected:
  static int shards() { return std::get<1>(GetParam()).second; }
  static int world_size() { return std::get<1>(GetParam()).first * shards(); }
  static RankRun run(const RankBody& body) {
    return run_ranks(world_size(), body, {.backend = std::get<0>(GetParam())});
  }
};

using Sizes = std::pair<int, int>;
INSTANTIATE_TEST_SUITE_P(, HybridCommunicator,
                         testing::Combine(testing::Values("shm", "gloo"),
                                          testing::Values(Sizes(2, 2), Sizes(2, 3), Sizes(4, 2),
                                                          Sizes(3, 1), Sizes(1, 3))),
                         [](const auto& info) {
                           const Sizes sizes = std::get<1>(info.param);
                           return std::get<0>(info.param) + std::to_string(sizes.first) + "x" +
                                  std::to_string(sizes.second);
                         });

// Waits until all ranks of this rank's groups are connected. If a rank ended earlier, it
// would close its connections, and a rank that is still connecting would fail.
void meet(Communicator& comm) {
  comm.reduce_scatter_into(at::zeros({1}), at::zeros({comm.world_size()}), "all are connected")
      .wait();
}

TEST_P(HybridCommunicator, collectives_run_within_a_replica_or_between_the_holders_of_a_shard) {
  const RankRun run = this->run([](TestRank& rank) {
    const auto& comm = rank.hybrid(shards());
    const auto replicas = comm->replicas();
    rank.observe("numbers", {comm->rank(), comm->world_size(), comm->global_rank(),
                             comm->data_parallel_size(), replicas ? replicas->rank() : -1});
    const at::Tensor sum = at::full({1}, rank.rank(), at::kFloat), last = sum.clone();
    const at::Tensor gathered = at::empty({shards()});
    comm->all_gather_into(gathered, sum, "unit").wait();
    comm->all_reduce(sum, "unit").wait();
    comm->broadcast(last, shards() - 1, "unit").wait();
    rank.observe("of its row", {values_of<float>(gathered), sum.item<float>(), last.item<float>()});
    comm->barrier("unit").wait();
    if (replicas) {
      replicas->all_reduce(sum, "unit").wait();
      replicas->broadcast(last, 0, "unit").wait();
    }
    rank.observe("of all", {sum.item<float>(), last.item<float>()});
    meet(*comm);
  });
  const int shards = this->shards(), world = world_size();
  expect_on_each_rank(run, "numbers", [&](int rank) {
    return nlohmann::json{rank % shards, shards, rank, world, world > shards ? rank / shards : -1};
  });
  expect_on_each_rank(run, "of its row", [&](int rank) {
    std::vector<float> row(static_cast<size_t>(shards));
    std::iota(row.begin(), row.end(), static_cast<float>(rank / shards * shards));
    return nlohmann::json{row, std::accumulate(row.begin(), row.end(), 0.F), row.back()};
  });
  expect_on_all_ranks(run, "of all", nlohmann::json{world * (world - 1) / 2.F, shards - 1.F});
}

// Returns this rank's slice, [numel], of the sum of all ranks' parts, which are added within each
// replica first, and then over the replicas.
at::Tensor sum_in_two_steps(const TestRank& rank, int shards, int64_t numel) {
  std::vector<at::Tensor> rows;
  for (int first = 0; first < rank.world_size(); first += shards) {
    std::vector<at::Tensor> row;
    for (int shard = 0; shard < shards; ++shard)
      row.push_back(part(first + shard, numel * shards));
    rows.push_back(sum_as_tree(row).narrow(0, rank.rank() % shards * numel, numel));
  }
  return sum_as_tree(rows);
}

TEST_P(HybridCommunicator, reduce_scatter_sums_within_each_replica_and_then_over_the_replicas) {
  const RankRun run = this->run([](TestRank& rank) {
    const auto& comm = rank.hybrid(shards());
    constexpr int64_t kNumel = 100;
    const at::Tensor expected = sum_in_two_steps(rank, shards(), kNumel);
    for (const at::Tensor& output : {comm->empty(kNumel), at::empty({kNumel})}) {
      const at::Tensor input = comm->empty(kNumel * shards());
      input.copy_(part(rank.rank(), kNumel * shards()));
      Handle handle = comm->reduce_scatter_into(output, input, "unit");
      EXPECT_TRUE(handle.pending());
      handle.wait();
      EXPECT_FALSE(handle.pending());
      handle.wait();
      EXPECT_TRUE(at::equal(output, expected));
    }
    for (const Call& call : comm->take_log())
      EXPECT_EQ(call.level == Level::replicas, call.operation == Operation::all_reduce);
  });
}

TEST(HybridCommunicatorSize,
     a_shard_size_that_does_not_divide_the_world_or_a_link_between_replicas_throws) {
  EXPECT_CONTAINS(try_ranks(3, [](TestRank& rank) { rank.hybrid(2); }).failure(),
                  "create_hybrid(): shard_size 2 does not divide 3 ranks");
  EXPECT_CONTAINS(
      try_ranks(2, [](TestRank& rank) { rank.hybrid(1); }, {.link = Link{10us, 1e9}}).failure(),
      "create_hybrid(): a simulated link works with one replica only");
}

}  // namespace
}  // namespace fsdp
