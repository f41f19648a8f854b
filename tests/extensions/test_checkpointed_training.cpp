#include <fully_shard.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <testing/multi_rank.h>

#include "language_models.h"
#include "two_steps.h"

// Tests of training with and without checkpointed activations.
namespace fsdp {
namespace {

// Returns the workload of `model`. The activations of each `every`-th block are checkpointed, or of
// no block if `every` is 0.
Workload checkpointed(const NamedModel& model, int every) {
  Workload workload = workload_of(model);
  workload.build = [build = workload.build, every] {
    const auto built = build();
    if (every > 0) checkpoint_blocks(*built, every);
    return built;
  };
  return workload;
}

MULTI_RANK_SUITE(CheckpointedTraining);

MULTI_RANK_TEST(
    CheckpointedTraining,
    training_with_checkpointed_blocks_matches_one_process_without_them_and_the_prediction) {
  // Every `every`-th block of a model is checkpointed: in the first model all blocks, in the next
  // model every second block, and so on in turn.
  int every = 1;
  for (const NamedModel& model : language_models()) {
    SCOPED_TRACE(model.name + ", every " + std::to_string(every));
    const TrainConfig config = extension_config("fsdp", world_size());
    expect_as_predicted(config, checkpointed(model, every),
                        hash_of_single(config, checkpointed(model, 0)));
    every = 3 - every;
  }
}

// Trains two steps. Returns a text with a line for each collective of both steps, in the order of
// issue.
std::string calls_of(TestRank& rank, TrainConfig config, int every) {
  const auto strategy =
      make_fsdp_strategy(config, checkpointed(language_models()[1], every), rank.communicator());
  rank.communicator()->take_log();
  for (int64_t step = 0; step < 2; ++step)
    train_step(*strategy, config, step);
  std::string calls;
  for (const Call& call : rank.communicator()->take_log())
    calls += std::string(to_string(call.operation)) + " " + call.unit.str() + "\n";
  return calls;
}

MULTI_RANK_TEST(CheckpointedTraining,
                checkpointing_does_not_change_the_collectives_or_their_order) {
  for (const bool reshard : {true, false}) {
    for (const int limit : {1, 2, 3}) {
      TrainConfig config = extension_config("fsdp", world_size());
      config.training.microbatches = world_size();
      config.sharding.reshard_after_forward = reshard;
      config.sharding.limit = limit;
      const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
        const std::string without = calls_of(rank, config, 0);
        rank.observe("as without", calls_of(rank, config, 1) == without);
        rank.observe("calls", std::count(without.begin(), without.end(), '\n'));
      });
      expect_on_all_ranks(run, "as without", true);
      // Forward gathers the root and five units. If units are resharded after forward, backward
      // gathers four of them again: all except the root and the embedding.
      const int gathers = 6 + (reshard ? 4 : 0);
      expect_on_all_ranks(run, "calls", 2 * (gathers + 6));
    }
  }
}

MULTI_RANK_TEST(CheckpointedTraining, forward_throws_if_a_checkpointed_block_contains_a_unit) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(5);
    const auto model = untied_model(60);
    checkpoint_blocks(*model, 1);
    FullyShardOptions options;
    options.wrap = wrap_by_type("CausalAttention");
    const auto sharded = fully_shard(*model, rank.communicator(), options);
    rank.observe("what forward throws", thrown_by([&] { (*model)(at::zeros({1, 4}, at::kLong)); }));
  });
  expect_error(run, "what forward throws",
               {"std::logic_error", "TransformerBlock", "a unit inside it holds parameter attn."});
}

// Compares the peaks in forward of memory class "other", which counts neither parameters nor
// gradients. Most of these bytes are activations that are kept for backward.
MULTI_RANK_TEST(CheckpointedTraining, checkpointing_more_blocks_keeps_fewer_bytes_for_backward) {
  const auto kept = [&](const char* mode, int every) {
    const RankRun run =
        run_ranks(std::string(mode) == "single" ? 1 : world_size(), [&](TestRank& rank) {
          TrainConfig config = extension_config(mode, world_size());
          config.training.microbatches = world_size();
          const Workload workload = checkpointed(language_models().front(), every);
          const auto strategy = strategy_of(rank, config, workload);
          train_step(*strategy, config, 0);
          rank.observe("rest", live_bytes::peak(Phase::forward)[MemoryClass::other]);
        });
    return run.at(0, "rest").get<int64_t>();
  };
  for (const char* mode : {"fsdp", "single"}) {
    EXPECT_LT(kept(mode, 2), kept(mode, 0)) << mode;
    EXPECT_LT(kept(mode, 1), kept(mode, 2)) << mode;
  }
}

}  // namespace
}  // namespace fsdp
