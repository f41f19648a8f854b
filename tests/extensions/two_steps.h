#pragma once

#include <prediction/prediction.h>
#include <report/parameter_summary.h>
#include <trainer/mode_of.h>
#include <trainer/strategy_of.h>

#include <task7_integration/predicted_peaks.h>

#include <map>
#include <string>

// Trains a workload for two steps. The second step is compared with its prediction.
namespace fsdp {

inline TrainConfig extension_config(const std::string& mode, int world_size) {
  TrainConfig config;
  config.ranks.mode = mode_of(mode);
  config.ranks.world = world_size;
  config.training.microbatches = 12;
  config.training.steps = 2;
  config.optimizer.lr = 0.01;
  return config;
}

inline std::string hash_of(Strategy& strategy) {
  ParameterSummary summary;
  strategy.full_parameters([&](const auto&, const at::Tensor& p) { summary.add(p); });
  return summary.sha256();
}

inline void train_step(Strategy& strategy, const TrainConfig& config, int64_t step) {
  strategy.forward_backward(step);
  if (config.optimizer.clip)
    strategy.clip_grad_norm(*config.optimizer.clip, config.optimizer.norm_type);
  strategy.step();
}

// Returns the hash of the parameters after two steps of one process that computes the batches of
// all ranks.
inline nlohmann::json hash_of_single(TrainConfig config, const Workload& workload) {
  config.ranks.mode = Mode::single;
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const auto strategy = strategy_of(rank, config, workload);
    for (int64_t step = 0; step < 2; ++step)
      train_step(*strategy, config, step);
    rank.observe("hash", hash_of(*strategy));
  });
  return run.at(0, "hash");
}

// Trains two steps on this rank. Observes for the second step the peaks of live bytes with their
// predictions and whether the traffic is as predicted, and on rank 0 the hash of the parameters.
inline void train_as_predicted(TestRank& rank, const TrainConfig& config,
                               const Workload& workload) {
  const auto strategy = strategy_of(rank, config, workload);
  train_step(*strategy, config, 0);
  for (size_t phase = 0; phase < kPhases; ++phase)
    live_bytes::reset(static_cast<Phase>(phase));
  rank.communicator()->take_log();
  train_step(*strategy, config, 1);

  const Schedule step = traced_step(config, workload, strategy->layout(), rank.rank());
  observe_peaks(rank, predict_memory(step, "shm").bytes);
  auto predicted = predict_comm_bytes(step);
  // The prediction counts the bytes of averaging the loss over ranks. The trainer averages it, but
  // these tests do not.
  predicted.erase("metrics");
  std::map<std::string, int64_t> received;
  for (const Call& call : rank.communicator()->take_log())
    received[call.unit == kNorm ? "norm" : to_string(call.operation)] += call.bytes;
  rank.observe("traffic is as predicted", received == predicted);
  const std::string hash = hash_of(*strategy);
  if (rank.rank() == 0) rank.observe("hash", hash);
}

// Trains two steps. Expects that the live bytes and the traffic of the second step are as
// predicted, and that the parameters have the hash `hash` afterwards.
inline void expect_as_predicted(const TrainConfig& config, const Workload& workload,
                                const nlohmann::json& hash) {
  const RankRun run =
      run_ranks(config.ranks.mode == Mode::single ? 1 : config.ranks.world,
                [&](TestRank& rank) { train_as_predicted(rank, config, workload); });
  expect_predicted_peaks(run);
  expect_on_all_ranks(run, "traffic is as predicted", true);
  expect_on_rank(run, 0, "hash", hash);
}

}  // namespace fsdp
