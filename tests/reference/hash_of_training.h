#pragma once

#include <report/parameter_summary.h>
#include <testing/multi_rank.h>
#include <trainer/strategy_of.h>

#include <string>

namespace fsdp {

// The hash of the parameters after three steps of the strategy that `config` names.
inline nlohmann::json hash_of_training(const TrainConfig& config, const Workload& workload,
                                       const std::string& backend = "shm") {
  const RankRun run = run_ranks(
      config.mode == "single" ? 1 : config.world,
      [&](TestRank& rank) {
        const auto strategy = strategy_of(rank, config, workload);
        for (int64_t step = 0; step < 3; ++step) {
          strategy->forward_backward(step);
          if (config.clip) strategy->clip_grad_norm(*config.clip, config.norm_type);
          strategy->step();
        }
        ParameterSummary summary;
        strategy->full_parameters([&](const auto&, const at::Tensor& p) { summary.add(p); });
        if (rank.rank() == 0) rank.observe("hash", summary.sha256());
      },
      {.backend = backend});
  EXPECT_EQ(run.failure(), "");
  return run.at(0, "hash");
}

}  // namespace fsdp
