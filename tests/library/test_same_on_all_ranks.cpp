#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

namespace fsdp {
namespace {

MULTI_RANK_SUITE_ON(SameOnAllRanks, 2, 3);

MULTI_RANK_TEST(SameOnAllRanks,
                wrapping_models_that_differ_between_ranks_throws_and_names_the_difference) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto expect = [&](const std::shared_ptr<Module>& net, const char* says) {
      const auto shard = [&] { FullyShardedDataParallel model(*net, rank.communicator()); };
      const auto replicate = [&] { DistributedDataParallel model(*net, rank.communicator()); };
      EXPECT_CONTAINS(error_of<std::invalid_argument>(shard), says);
      EXPECT_CONTAINS(error_of<std::invalid_argument>(replicate), says);
    };
    const bool other = rank.rank() == 1;
    const auto net = block_net(3, other ? 2 : 1);
    expect(net, "ranks differ in the values of parameter scale: ");
    DistributedDataParallel synced(*net, rank.communicator(), {.sync_module_states = true});
    EXPECT_TRUE(at::equal(net->scale, block_net()->scale));
    expect(block_net(other ? 2 : 3),
           "ranks differ in what they have: parameter b2.linear.weight on rank");
    torch::manual_seed(1);
    expect(std::make_shared<BlockNet>(1, rank.rank() == 0 ? 5 : 6),
           "ranks differ in parameter scale: Float [5] on rank 0, ");
  });
}

MULTI_RANK_TEST(
    SameOnAllRanks,
    wrapping_with_units_or_options_that_differ_between_ranks_throws_and_names_the_difference) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto expect = [&](const FullyShardedDataParallelOptions& of_others, const char* says) {
      const auto net = block_net();
      const auto options = rank.rank() == 0 ? FullyShardedDataParallelOptions() : of_others;
      const auto shard = [&] {
        FullyShardedDataParallel model(*net, rank.communicator(), options);
      };
      EXPECT_CONTAINS(error_of<std::invalid_argument>(shard), says);
    };
    expect({.wrap = wrap_none()}, "ranks differ in unit root: scale on rank 0, scale b0.linear");
    expect({.limit = 3}, "ranks differ in .limit: 2 on rank 0, 3 on rank");
    expect({.reshard_after_forward = false}, "ranks differ in .reshard_after_forward: ");
  });
}

// In the forward after it has frozen a parameter, a rank compares its parameters with the other
// ranks. If all ranks freeze a parameter, but not the same one, this comparison names the
// difference. If only some ranks freeze one, the other ranks issue another collective at that
// point, and the error names the two collectives.
MULTI_RANK_TEST(SameOnAllRanks,
                an_error_names_the_parameters_that_only_some_ranks_freeze_after_a_step) {
  const auto train = [](TestRank& rank, const auto& freeze) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    loss_of(*net, rank).backward();
    freeze(*net);
    loss_of(*net, rank).backward();
  };
  run_ranks(world_size(), [&](TestRank& rank) {
    EXPECT_CONTAINS(error_of([&] {
                      train(rank, [&](BlockNet& net) {
                        net.blocks[0]->linear->bias.set_requires_grad(false);
                        net.blocks[1]->linear->bias.set_requires_grad(rank.rank() != 1);
                      });
                    }),
                    "ranks differ in parameter b1.linear.bias: trainable on rank");
  });
  const RankRun others = try_ranks(world_size(), [&](TestRank& rank) {
    train(rank, [&](BlockNet& net) {
      net.blocks[rank.rank() == 1 ? 1 : 0]->linear->bias.set_requires_grad(false);
    });
  });
  expect_error_says(others.failure(), "set_requires_grad() of b0.linear.bias");
  expect_error_says(others.failure(), "set_requires_grad() of b1.linear.bias");
  const RankRun run = try_ranks(world_size(), [&](TestRank& rank) {
    train(rank,
          [&](BlockNet& net) { net.blocks[0]->linear->bias.set_requires_grad(rank.rank() != 1); });
  });
  expect_error_says(run.failure(), "differs between ranks");
}

}  // namespace
}  // namespace fsdp
