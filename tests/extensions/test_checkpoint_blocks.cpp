#include <strategies/fsdp/fsdp_strategy.h>
#include <testing/multi_rank.h>

#include <task4_backward_hooks/checkpointed_layers.h>

namespace fsdp {
namespace {

TEST(CheckpointBlocks,
     checkpoint_blocks_checkpoints_every_kth_block_and_counts_a_repeated_block_once) {
  for (const int every : {1, 2, 3}) {
    const RankRun run = run_ranks(1, [&](TestRank& rank) {
      std::vector<std::shared_ptr<LayerBlock>> blocks;
      for (int i = 0; i < 6; ++i)
        blocks.push_back(layer());
      const auto model = chain(
          {blocks[0], blocks[0], chain({blocks[1]}), blocks[2], blocks[3], blocks[4], blocks[5]});
      checkpoint_blocks(*model, every);
      (*model)(random_input()).sum().backward();
      std::vector<int> runs;
      for (const auto& block : blocks)
        runs.push_back(block->runs);
      rank.observe("runs of each block, every " + std::to_string(every), runs);
    });
    // In a forward, the first block is called twice and every other block once. A checkpointed
    // block runs twice as often, because backward recomputes it.
    std::vector<int> expected{2, 1, 1, 1, 1, 1};
    for (int i = every - 1; i < 6; i += every)
      expected[static_cast<size_t>(i)] *= 2;
    expect_on_all_ranks(run, "runs of each block, every " + std::to_string(every), expected);
  }
}

}  // namespace
}  // namespace fsdp
