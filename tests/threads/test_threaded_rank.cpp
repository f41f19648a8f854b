#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <fully_shard.h>
#include <gtest/gtest.h>
#include <launch/rank_context.h>
#include <launch/shared_region.h>
#include <sharded_optimizer.h>
#include <testing/toy_model.h>

#include <functional>
#include <thread>

// Ranks normally are processes. Here they are threads of one process, so that the thread sanitizer
// sees their accesses to the memory that they share: ./fsdp test --preset tsan.
namespace fsdp {
namespace {

constexpr size_t kArenaBytes = size_t{64} << 20;
constexpr int64_t kNumel = 4096;

// Runs `body` in a thread for each rank. Returns the message of an exception that a rank threw;
// empty if none did.
std::string failure(int world_size,
                    const std::function<void(std::shared_ptr<Communicator>)>& body) {
  at::set_num_threads(1);
  const auto shared = SharedRegion::create(world_size, kArenaBytes);
  std::vector<std::string> failures(static_cast<size_t>(world_size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        body(Communicator::create({rank, world_size, shared}));
      } catch (const std::exception& error) {
        failures[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& rank : ranks)
    rank.join();
  for (const std::string& text : failures) {
    if (!text.empty()) return text;
  }
  return {};
}

void require_sum(const at::Tensor& tensor, double expected, const std::string& what) {
  const double sum = tensor.sum().item<double>();
  if (sum == expected) return;
  throw std::runtime_error(what + ": the sum is " + std::to_string(sum) + ", expected " +
                           std::to_string(expected));
}

class ThreadedRank : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, ThreadedRank, testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return "W" + std::to_string(info.param); });

TEST_P(ThreadedRank, ranks_that_are_threads_run_collectives_without_a_data_race) {
  const int world_size = GetParam();
  const double ranks = world_size * (world_size + 1) / 2.0;
  EXPECT_EQ(failure(world_size,
                    [&](const std::shared_ptr<Communicator>& comm) {
                      const at::Tensor shard = comm->empty(kNumel);
                      const at::Tensor whole = comm->empty(kNumel * world_size);
                      const at::Tensor heap = at::empty({kNumel});
                      for (int round = 0; round < 100; ++round) {
                        shard.fill_(comm->rank() + 1);
                        comm->all_gather_into(whole, shard, "unit").wait();
                        require_sum(whole, kNumel * ranks, "all_gather");
                        comm->reduce_scatter_into(heap, whole, "unit").wait();
                        comm->all_reduce(heap, "norm").wait();
                        require_sum(heap, kNumel * ranks * world_size, "all_reduce");
                        heap.fill_(comm->rank());
                        comm->broadcast(heap, world_size - 1, "unit").wait();
                        require_sum(heap, kNumel * (world_size - 1.0), "broadcast");
                        comm->barrier("round").wait();
                      }
                    }),
            "");
}

TEST_P(ThreadedRank, ranks_that_are_threads_train_with_prefetch_without_a_data_race) {
  const int world_size = GetParam();
  std::vector<double> sums(static_cast<size_t>(world_size));
  EXPECT_EQ(
      failure(world_size,
              [&](const std::shared_ptr<Communicator>& comm) {
                ToyModel model(4);
                FullyShardOptions options;
                options.limit = 3;
                options.wrap = wrap_by_type("ToyBlock");
                const auto sharded = fully_shard(model, comm, options);
                const auto optimizer = make_sharded_optimizer(sharded->units(), {{"", {}}}, comm);
                for (int step = 0; step < 10; ++step) {
                  model(toy_tokens(comm->rank())).square().sum().backward();
                  optimizer->clip_grad_norm(1);
                  optimizer->step();
                  optimizer->zero_grad();
                }
                double& sum = sums[static_cast<size_t>(comm->rank())];
                for (const auto& unit : sharded->units()) {
                  unit->unshard();
                  for (const auto& parameter : unit->parameters())
                    sum += parameter.tensor.sum().item<double>();
                  unit->reshard();
                }
                comm->barrier("end").wait();
              }),
      "");
  for (const double sum : sums)
    EXPECT_EQ(sum, sums[0]);
}

}  // namespace
}  // namespace fsdp
