#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

namespace fsdp {
namespace {

MULTI_RANK_SUITE_ON(FrozenParameter, 2, 3, 4);

// The ranks of the last replica freeze or unfreeze the parameter; if there is only one replica, the
// last rank does.
MULTI_RANK_TEST(FrozenParameter,
                the_error_names_a_parameter_that_only_some_ranks_froze_or_unfroze) {
  for (int shards = 1; shards <= world_size(); ++shards) {
    if (world_size() % shards != 0) continue;
    for (const bool unfreezes : {false, true}) {
      const RankRun run = try_ranks(world_size(), [&](TestRank& rank) {
        const auto net = block_net();
        const at::Tensor bias = net->blocks[1]->linear->bias;
        bias.set_requires_grad(!unfreezes);
        FullyShardedDataParallel model(*net, rank.hybrid(shards));
        loss_of(*net, rank).backward();
        const int first = shards == rank.world_size() ? shards - 1 : rank.world_size() - shards;
        if (rank.rank() >= first) bias.set_requires_grad(unfreezes);
        loss_of(*net, rank).backward();
      });
      EXPECT_CONTAINS(run.failure(), "set_requires_grad() of b1.linear.bias");
      EXPECT_CONTAINS(run.failure(), "likely cause: rank");
    }
  }
}

MULTI_RANK_TEST(FrozenParameter, freezing_a_parameter_on_one_rank_and_undoing_it_is_no_error) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    const auto step = [&] { loss_of(*net, rank).backward(); };
    step();
    const at::Tensor bias = net->blocks[1]->linear->bias;
    if (rank.rank() == 0) {
      bias.set_requires_grad(false);
      model.parameters();  // at this call, the model notices that the parameter is frozen
      bias.set_requires_grad(true);
    }
    step();
    bias.set_requires_grad(rank.rank() == 0);
    model.parameters();
    bias.set_requires_grad(false);
    step();
  });
}

}  // namespace
}  // namespace fsdp
