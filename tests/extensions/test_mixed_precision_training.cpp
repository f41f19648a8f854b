#include <strategies/replica_strategy.h>
#include <testing/multi_rank.h>

#include <cmath>
#include <limits>
#include <vector>

#include "language_models.h"
#include "two_steps.h"

// Tests of training with parameters or gradients in 16 bits.
namespace fsdp {
namespace {

std::vector<MixedPrecisionPolicy> mixed_policies() {
  std::vector<MixedPrecisionPolicy> policies;
  for (const auto param_dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto reduce_dtype : {at::kFloat, at::kBFloat16, at::kHalf})
      policies.push_back({param_dtype, reduce_dtype});
  policies.erase(policies.begin());  // removes the first policy, which is fp32 only
  return policies;
}

std::string named(const MixedPrecisionPolicy& policy) {
  return std::string(dtype_name(policy.param_dtype)) + ", sent in " +
         dtype_name(policy.reduce_dtype);
}

NamedModel tied() {
  return language_models()[2];
}

MULTI_RANK_SUITE(MixedPrecisionTraining);

MULTI_RANK_TEST(MixedPrecisionTraining,
                training_in_mixed_precision_matches_one_process_and_the_prediction) {
  TrainConfig config = extension_config("fsdp", world_size());
  const auto in_fp32 = hash_of_single(config, workload_of(tied()));
  for (const MixedPrecisionPolicy& policy : mixed_policies()) {
    SCOPED_TRACE(named(policy));
    config.precision.policy = policy;
    const auto of_single = hash_of_single(config, workload_of(tied()));
    expect_as_predicted(config, workload_of(tied()), of_single);
    EXPECT_NE(of_single, in_fp32) << "nothing was rounded";
  }
}

TEST(MixedPrecisionEvaluation,
     evaluation_in_mixed_precision_uses_the_parameters_after_the_last_step) {
  TrainConfig config = extension_config("single", 1);
  config.precision.policy = {at::kBFloat16, at::kBFloat16};
  config.training.microbatches = 1;
  const Workload workload = workload_of(tied());
  const auto value = [&](Module& model, int microbatch, int microbatches) {
    return workload.loss(model, microbatch, microbatches, 0);
  };
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const auto single = make_replica_strategy(config, workload, shard_layout(config, workload));
    const auto fsdp = make_fsdp_strategy(config, workload, rank.communicator());
    for (const auto& strategy : {single.get(), fsdp.get()}) {
      train_step(*strategy, config, 0);
      rank.observe(strategy == single.get() ? "single" : "fsdp", strategy->evaluate(value));
    }
  });
  EXPECT_EQ(run.at(0, "single"), run.at(0, "fsdp"));
}

MULTI_RANK_TEST(MixedPrecisionTraining,
                sixteen_bits_halve_the_predicted_gathered_bytes_and_traffic) {
  TrainConfig config = extension_config("fsdp", world_size());
  const ShardLayout layout = shard_layout(config, workload_of(tied()));
  const Schedule in_fp32 = schedule(config, layout);
  config.precision.policy = {at::kBFloat16, at::kHalf};
  const Schedule in_16_bits = schedule(config, layout);
  auto halved = predict_comm_bytes(in_fp32);
  for (const char* operation : {"all_gather", "reduce_scatter"})
    halved[operation] /= 2;
  EXPECT_EQ(predict_comm_bytes(in_16_bits), halved);
  const auto gathered = [](const Schedule& step, Phase phase) {
    const auto cls = static_cast<size_t>(MemoryClass::gathered);
    return predict_memory(step, "shm").bytes[static_cast<size_t>(phase)][cls].value();
  };
  for (const Phase phase : {Phase::forward, Phase::backward})
    EXPECT_EQ(gathered(in_16_bits, phase) * 2, gathered(in_fp32, phase));
}

// Trains three steps of the workload with_an_overflow(). In the second step, the loss of the last
// microbatch is so large that its gradients overflow. If there are several ranks, this happens on
// only one of them. Writes to `steps` whether each step was made. Returns the hash of the
// parameters.
std::string hash_with_an_overflow(Strategy& strategy, std::vector<bool>& steps) {
  for (int64_t step = 0; step < 3; ++step) {
    strategy.set_loss_scale(step == 0 ? 4 : 8);
    strategy.forward_backward(step);
    const double norm = strategy.clip_grad_norm(std::numeric_limits<double>::infinity(), 2);
    steps.push_back(std::isfinite(norm));
    if (steps.back()) {
      strategy.step();
    } else {
      strategy.skip_step();
    }
  }
  return hash_of(strategy);
}

Workload with_an_overflow(const NamedModel& model) {
  Workload workload = workload_of(model);
  workload.loss = [loss = workload.loss](Module& called, int microbatch, int microbatches,
                                         int64_t step) {
    const at::Tensor value = loss(called, microbatch, microbatches, step);
    return step == 1 && microbatch == microbatches - 1 ? value * 1e9 : value;
  };
  return workload;
}

MULTI_RANK_TEST(MixedPrecisionTraining, an_overflow_on_one_rank_skips_the_step_on_all_ranks) {
  TrainConfig config = extension_config("single", world_size());
  config.training.microbatches = world_size();
  config.precision.policy = {at::kHalf, at::kHalf};
  const RankRun of_single = run_ranks(1, [&](TestRank& rank) {
    const Workload workload = with_an_overflow(tied());
    const auto strategy = make_replica_strategy(config, workload, shard_layout(config, workload));
    std::vector<bool> steps;
    rank.observe("hash", hash_with_an_overflow(*strategy, steps));
  });
  config.ranks.mode = Mode::fsdp;
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto strategy = make_fsdp_strategy(config, with_an_overflow(tied()), rank.communicator());
    std::vector<bool> steps;
    const std::string hash = hash_with_an_overflow(*strategy, steps);
    rank.observe("steps that were made", steps);
    if (rank.rank() == 0) rank.observe("hash", hash);
  });
  expect_on_all_ranks(run, "steps that were made", std::vector<bool>{true, false, true});
  expect_on_rank(run, 0, "hash", of_single.at(0, "hash"));
}

}  // namespace
}  // namespace fsdp
