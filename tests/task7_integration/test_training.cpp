#include <memory/live_bytes.h>
#include <prediction/prediction.h>
#include <report/parameter_summary.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <strategies/replica_strategy.h>
#include <testing/multi_rank.h>

#include "predicted_peaks.h"
#include "tiny_training.h"

namespace fsdp {
namespace {

// Trains three steps. Observes the norms if gradients are clipped, and, on rank 0, the hash of the
// parameters. If `look` is true, evaluates and exports the model before each step.
void train(TestRank& rank, Strategy& strategy, const TrainConfig& config, bool look = false) {
  for (int64_t step = 0; step < 3; ++step) {
    if (look) {
      const Workload tiny = tiny_workload(config);
      strategy.evaluate([&](Module& model, int microbatch, int microbatches) {
        return tiny.loss(model, microbatch, microbatches, 7);
      });
      strategy.full_parameters([](const std::string&, const at::Tensor&) {});
    }
    strategy.forward_backward(step);
    if (config.optimizer.clip) {
      rank.observe("norm " + std::to_string(step),
                   strategy.clip_grad_norm(*config.optimizer.clip, config.optimizer.norm_type));
    }
    strategy.step();
  }
  ParameterSummary summary;
  strategy.full_parameters([&](const auto&, const at::Tensor& p) { summary.add(p); });
  if (rank.rank() == 0) rank.observe("hash", summary.sha256());
}

nlohmann::json hash_of_single(const TrainConfig& config) {
  const Workload tiny = tiny_workload(config);
  return run_ranks(1,
                   [&](TestRank& rank) {
                     const ShardLayout layout = shard_layout(config, tiny);
                     train(rank, *make_replica_strategy(config, tiny, layout), config);
                   })
      .at(0, "hash");
}

void expect_all_modes_equal(TrainConfig config) {
  const auto expected = hash_of_single(config);
  config.ranks.mode = Mode::ddp;
  const RankRun ddp = run_ranks(config.ranks.world, [&](TestRank& rank) {
    const Workload tiny = tiny_workload(config);
    const ShardLayout layout = shard_layout(config, tiny);
    train(rank, *make_replica_strategy(config, tiny, layout, rank.communicator()), config);
  });
  expect_on_rank(ddp, 0, "hash", expected);
  config.ranks.mode = Mode::fsdp;
  const RankRun fsdp = run_ranks(config.ranks.world, [&](TestRank& rank) {
    train(rank, *make_fsdp_strategy(config, tiny_workload(config), rank.communicator()), config);
  });
  expect_on_rank(fsdp, 0, "hash", expected);
}

MULTI_RANK_SUITE_ON(T7_5_the_proof, 1, 2, 3, 4, 8);

MULTI_RANK_TEST(T7_5_the_proof, three_steps_of_adamw_are_equal_in_all_modes) {
  expect_all_modes_equal(tiny_config(world_size()));
}

MULTI_RANK_TEST(T7_5_the_proof,
                three_steps_of_sgd_with_clipping_and_groups_are_equal_in_all_modes) {
  TrainConfig config = tiny_config(world_size());
  config.optimizer.kind = OptimizerOptions::Kind::sgd;
  config.optimizer.clip = 0.5;
  config.optimizer.no_decay = "bias|ln_";
  expect_all_modes_equal(config);
}

MULTI_RANK_TEST(T7_5_the_proof,
                neither_wrapping_nor_resharding_nor_evaluation_changes_the_parameters) {
  TrainConfig config = tiny_config(world_size());
  const auto expected = hash_of_single(config);
  for (const char* wrap : {"none", "type:Linear"}) {
    for (const bool reshard : {true, false}) {
      config.sharding.wrap = wrap;
      config.sharding.reshard_after_forward = reshard;
      config.sharding.meta_init = !reshard;
      config.sharding.limit = reshard ? 3 : 1;
      const RankRun run = run_ranks(config.ranks.world, [&](TestRank& rank) {
        train(rank, *make_fsdp_strategy(config, tiny_workload(config), rank.communicator()), config,
              /*look=*/true);
      });
      expect_on_rank(run, 0, "hash", expected);
    }
  }
}

// Returns the peaks that the contracts allow. The contracts leave two things open. First, gradients
// may be in a flat gradient since the first gradient of a unit arrived; then the flat gradients of
// the root, of the running unit and of the unit that is being reduced are alive. Second, every
// parameter may be a piece of the optimizer with a step count of its own.
AllowedPeak allowed_by_the_contracts(const ShardLayout& layout) {
  constexpr int64_t kStepCount = 4;
  int64_t root = 0, largest = 0;
  for (const auto& unit : layout.units) {
    int64_t& most = unit.root ? root : largest;
    most = std::max(most, unit.padded_numel * 4);
  }
  const auto parameters = static_cast<int64_t>(layout.parameters.size());
  return [=](Phase phase, MemoryClass cls, int64_t predicted) -> Allowed {
    if (cls == MemoryClass::gradients && phase == Phase::backward)
      return {root, std::max(predicted, root + 2 * largest)};
    if (cls == MemoryClass::optimizer_state)
      return {predicted, predicted + parameters * kStepCount};
    return exactly(phase, cls, predicted);
  };
}

MULTI_RANK_TEST(T7_5_the_proof, the_live_bytes_of_a_training_step_are_as_predicted) {
  TrainConfig config = tiny_config(world_size());
  config.training.steps = 2;
  const RankRun run = run_ranks(config.ranks.world, [&](TestRank& rank) {
    const auto strategy = make_fsdp_strategy(config, tiny_workload(config), rank.communicator());
    strategy->forward_backward(0);
    strategy->step();
    for (size_t phase = 0; phase < kPhases; ++phase)
      live_bytes::reset(static_cast<Phase>(phase));
    strategy->forward_backward(1);
    strategy->step();
    const ShardLayout& layout = strategy->layout();
    const Schedule step = traced_step(config, tiny_workload(config), layout, rank.rank());
    observe_peaks(rank, predict_memory(step, "shm").bytes, allowed_by_the_contracts(layout));
  });
  expect_predicted_peaks(run);
}

MULTI_RANK_TEST(T7_5_the_proof, the_bytes_that_a_training_step_receives_are_exactly_as_predicted) {
  TrainConfig config = tiny_config(world_size());
  config.training.steps = 1;
  const RankRun run = run_ranks(config.ranks.world, [&](TestRank& rank) {
    const auto strategy = make_fsdp_strategy(config, tiny_workload(config), rank.communicator());
    rank.communicator()->take_log();
    strategy->forward_backward(0);
    strategy->step();
    std::map<std::string, int64_t> bytes;
    for (const Call& call : rank.communicator()->take_log())
      bytes[to_string(call.operation)] += call.bytes;
    const auto predicted = predict_comm_bytes(schedule(config, strategy->layout()));
    for (const char* operation : {"all_gather", "reduce_scatter"}) {
      rank.observe(operation, bytes[operation]);
      rank.observe(std::string("predicted ") + operation, predicted.at(operation));
    }
  });
  for (const std::string operation : {"all_gather", "reduce_scatter"})
    expect_on_all_ranks(run, operation, run.at(0, "predicted " + operation));
}

}  // namespace
}  // namespace fsdp
