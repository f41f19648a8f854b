#include <common/expect_text.h>
#include <common/limit_file_size.h>
#include <common/temporary_folder.h>

#include "language_models.h"
#include "two_steps.h"

namespace fsdp {
namespace {

TrainConfig config_of(const std::string& folder, int64_t pinned) {
  TrainConfig config = extension_config("single", 1);
  config.memory.offload_dir = folder;
  config.memory.offload_resident = pinned;
  return config;
}

// Returns how many bytes the gradients take at their peak in the backward passes of one process.
int64_t most_gradients(const std::string& folder) {
  const Workload workload = workload_of(language_models().at(2));
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const TrainConfig config = config_of(folder, 0);
    const auto strategy = strategy_of(rank, config, workload);
    for (size_t phase = 0; phase < kPhases; ++phase)
      live_bytes::reset(static_cast<Phase>(phase));
    train_step(*strategy, config, 0);
    rank.observe("bytes", live_bytes::peak(Phase::backward)[MemoryClass::gradients]);
  });
  return run.at(0, "bytes");
}

TEST(GradientSumOffload, with_offload_only_one_sum_of_gradients_stays_in_memory) {
  const TemporaryFolder folder;
  // Without offloading, the peak is first reached in the backward pass of the seventh microbatch.
  // Then memory has the sum of the first four microbatches, the sum of the next two, and the
  // gradients of the seventh.
  const int64_t all = most_gradients("");
  EXPECT_EQ(most_gradients(folder.path()), all / 3);
}

TEST(GradientSumOffload, making_a_strategy_throws_if_gradient_sums_do_not_fit_into_the_file) {
  const TemporaryFolder folder;
  const Workload workload = workload_of(language_models().at(2));
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    // Up to 2^30 bytes of the optimizer's moments stay in memory, so none of them are in a file.
    const TrainConfig config = config_of(folder.path(), 1 << 30);
    limit_file_size(20000);
    rank.observe("error",
                 error_of<std::runtime_error>([&] { strategy_of(rank, config, workload); }));
  });
  expect_on_rank(run, 0, "error",
                 folder.path() +
                     ": can't reserve 28032 bytes for sums of gradients that wait: File "
                     "too large");
}

}  // namespace
}  // namespace fsdp
