#include <data/dataset.h>
#include <memory/live_bytes.h>
#include <strategies/build_model.h>
#include <strategies/language_modeling.h>
#include <strategies/workload.h>
#include <testing/multi_rank.h>
#include <train/validation.h>

#include "two_steps.h"

// Evaluates held-out rows while a model learns addition modulo 7. 9 of the 49 pairs are held out.
// The numbers of microbatches in these tests, 4 and 6, do not divide 9.
namespace fsdp {
namespace {

TrainConfig addition_config(const std::string& mode, int world_size) {
  TrainConfig config = extension_config(mode, world_size);
  config.model.name = "gpt2-tiny";
  config.data.kind = DataKind::modular;
  config.data.modulus = 7;
  config.training.microbatches = world_size == 3 ? 6 : 4;
  config.training.batch = 24;
  config.training.seq = kModularSeq;
  return config;
}

std::shared_ptr<Dataset> dataset_of(const TrainConfig& config) {
  return make_modular_dataset(config.data.modulus, config.training.seed);
}

Workload workload_of(const TrainConfig& config) {
  return language_modeling(config, dataset_of(config));
}

// Trains two steps on this rank. If `evaluates` is true, evaluates the held-out rows after each
// step.
void train(TestRank& rank, const TrainConfig& config, bool evaluates) {
  const auto strategy = strategy_of(rank, config, workload_of(config));
  const Validation held_out(config, *dataset_of(config));
  for (int64_t step = 0; step < 2; ++step) {
    train_step(*strategy, config, step);
    if (!evaluates) continue;
    const int64_t before = live_bytes::now()[MemoryClass::gathered];
    const HeldOutResult result = held_out.evaluate(*strategy, *rank.communicator());
    rank.observe("loss " + std::to_string(step), result.loss);
    rank.observe("accuracy " + std::to_string(step), result.accuracy);
    rank.observe("bytes left gathered " + std::to_string(step),
                 live_bytes::now()[MemoryClass::gathered] - before);
  }
  const std::string hash = hash_of(*strategy);
  if (rank.rank() == 0) rank.observe("hash", hash);
}

RankRun trained(const TrainConfig& config, bool evaluates) {
  const int processes = config.ranks.mode == Mode::single ? 1 : config.ranks.world;
  return run_ranks(processes, [&](TestRank& rank) { train(rank, config, evaluates); });
}

// Returns the run with which the other runs are compared. It is a run of one process. On three
// ranks the bits depend on the number of ranks, so this process computes the batches of three
// ranks. Otherwise the bits depend only on the number of microbatches, and the run has one rank.
RankRun expected_run(bool evaluates, int world_size) {
  TrainConfig config = addition_config("single", world_size == 3 ? 3 : 1);
  config.training.microbatches = world_size == 3 ? 6 : 4;
  return trained(config, evaluates);
}

// Returns configurations that divide the work of a step among ranks in different ways.
std::vector<TrainConfig> arrangements(int world_size) {
  std::vector<TrainConfig> all;
  for (const char* mode : {"single", "ddp", "fsdp"}) {
    all.push_back(addition_config(mode, world_size));
    all.push_back(all.back());
    all.back().training.reduce_gradients =
        world_size == 3 ? ReduceGradients::each : ReduceGradients::last;
  }
  all.back().sharding.wrap = "none";
  all.push_back(addition_config("fsdp", world_size));
  all.back().sharding.reshard_after_forward = false;
  all.push_back(addition_config("fsdp", world_size));
  all.back().sharding.shard_size = 1;
  return all;
}

MULTI_RANK_SUITE(HeldOutEvaluation);

MULTI_RANK_TEST(HeldOutEvaluation,
                held_out_loss_and_accuracy_do_not_depend_on_how_the_work_is_divided_among_ranks) {
  const RankRun expected = expected_run(true, world_size());
  for (const TrainConfig& config : arrangements(world_size())) {
    SCOPED_TRACE(std::string(to_string(config.ranks.mode)) + ", " + config.sharding_strategy() +
                 ", " + to_string(config.training.reduce_gradients));
    const RankRun run = trained(config, true);
    for (const std::string step : {"0", "1"}) {
      expect_on_all_ranks(run, "loss " + step, expected.at(0, "loss " + step));
      expect_on_all_ranks(run, "accuracy " + step, expected.at(0, "accuracy " + step));
      expect_on_all_ranks(run, "bytes left gathered " + step, 0);
    }
  }
}

MULTI_RANK_TEST(HeldOutEvaluation,
                evaluation_of_held_out_rows_does_not_change_the_trained_parameters) {
  for (const TrainConfig& config : arrangements(world_size())) {
    SCOPED_TRACE(std::string(to_string(config.ranks.mode)) + ", " + config.sharding_strategy() +
                 ", " + to_string(config.training.reduce_gradients));
    expect_on_rank(trained(config, true), 0, "hash", trained(config, false).at(0, "hash"));
  }
}

TEST(Validation, held_out_loss_and_accuracy_are_means_over_the_tokens_that_have_targets) {
  const TrainConfig config = addition_config("single", 1);
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const auto strategy = strategy_of(rank, config, workload_of(config));
    const auto data = dataset_of(config);
    const auto result = Validation(config, *data).evaluate(*strategy, *rank.communicator());
    const Batch rows = data->held_out(9, kModularSeq);
    const at::NoGradGuard no_grad;
    const at::Tensor logits = (*build_model(config))(rows.inputs).select(1, 2);
    const at::Tensor answers = rows.targets.select(1, 2);
    rank.observe("loss", result.loss - at::cross_entropy_loss(logits, answers).item<double>());
    rank.observe("right", result.accuracy * 9);
    rank.observe("expected", (logits.argmax(1) == answers).sum().item<double>());
  });
  EXPECT_NEAR(run.at(0, "loss").get<double>(), 0, 1e-5);
  EXPECT_NEAR(run.at(0, "right").get<double>(), run.at(0, "expected").get<double>(), 1e-12);
}

}  // namespace
}  // namespace fsdp
