#include <memory/live_bytes.h>
#include <sharded_optimizer.h>
#include <testing/multi_rank.h>

#include <library/models.h>
#include <library/one_process.h>

// Tests what a step of the library costs: its collectives and its peaks of live bytes must equal
// those of a step of fully_shard().
namespace fsdp {
namespace {

MULTI_RANK_SUITE(LibraryCost);

using Bytes = decltype(LiveBytes::by_class);

// Makes two steps with a ShardedOptimizer. Returns for the second step a text with one line for
// each collective, and the peaks of live bytes of each memory class, in forward and in backward.
std::pair<std::string, std::vector<Bytes>> costs_of_two_steps(
    TestRank& rank, Module& net, const std::vector<std::shared_ptr<FlatParameter>>& units) {
  const auto optimizer = make_sharded_optimizer(units, {{"", {}}}, rank.communicator());
  for (int step = 0; step < 2; ++step) {
    live_bytes::reset(Phase::forward);
    live_bytes::reset(Phase::backward);
    rank.communicator()->take_log();
    live_bytes::enter(Phase::forward);
    const at::Tensor loss = loss_of(net, rank, step);
    live_bytes::enter(Phase::backward);
    loss.backward();
    live_bytes::enter(Phase::optimizer);
    optimizer->step();
    optimizer->zero_grad();
  }
  std::string calls;
  for (const Call& call : rank.communicator()->take_log())
    calls += std::string(to_string(call.operation)) + ' ' + call.unit.str() + '\n';
  live_bytes::enter(Phase::init);
  return {calls,
          {live_bytes::peak(Phase::forward).by_class, live_bytes::peak(Phase::backward).by_class}};
}

MULTI_RANK_TEST(LibraryCost,
                the_collectives_and_live_bytes_of_the_library_equal_those_of_fully_shard) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto plain = [&] {
      const auto net = block_net();
      const auto sharded = fully_shard(*net, rank.communicator());
      return costs_of_two_steps(rank, *net, sharded->units());
    }();
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    EXPECT_EQ(costs_of_two_steps(rank, *net, model.units()), plain);
  });
}

MULTI_RANK_TEST(LibraryCost, destroying_a_sharded_model_frees_all_tensor_memory_that_it_used) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto before = live_bytes::now().total;
    {
      ShardedNet sharded(rank);
      sharded.step();
      sharded.model.state_dict();
    }
    EXPECT_EQ(live_bytes::now().total, before);
  });
}

}  // namespace
}  // namespace fsdp
