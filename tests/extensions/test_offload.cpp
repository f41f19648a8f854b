#include <common/expect_text.h>
#include <common/limit_file_size.h>
#include <common/temporary_folder.h>

#include "models.h"
#include "trained.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(Offload);

// One group of the parameters without decay lies between those of the other.
TrainConfig config_of(const std::string& mode, int world_size, const std::string& folder,
                      int64_t pinned) {
  TrainConfig config = extension_config(mode, world_size);
  config.no_decay = "ln";
  config.offload_dir = folder;
  config.pinned = pinned;
  return config;
}

MULTI_RANK_TEST(Offload, of_the_moments_changes_no_bit_and_costs_the_memory_that_is_predicted) {
  const TemporaryFolder folder;
  const Workload workload = workload_of(language_models().at(2));
  const auto expected = hash_of_single(config_of("single", world_size(), "", 0), workload);
  for (const int64_t pinned : {0, 4096, 1 << 20}) {
    SCOPED_TRACE(std::to_string(pinned) + " bytes pinned");
    expect_as_predicted(config_of("fsdp", world_size(), folder.path(), pinned), workload, expected);
  }
}

// Of twelve parts: up to two sums of gradients wait for a third.
MULTI_RANK_TEST(Offload, of_sums_that_wait_changes_no_bit_and_costs_the_memory_that_is_predicted) {
  const TemporaryFolder folder;
  const Workload workload = workload_of(language_models().at(2));
  for (const char* accumulate : {"each", "last"}) {
    for (const char* mode : {"fsdp", "ddp", "single"}) {
      SCOPED_TRACE(std::string(mode) + ", " + accumulate);
      TrainConfig config = config_of(mode, world_size(), "", 0);
      config.accumulate = accumulate;
      const auto expected = hash_of_single(config, workload);
      config.offload_dir = folder.path();
      expect_as_predicted(config, workload, expected);
    }
  }
}

// [bytes] of gradients, at most, of one process.
int64_t most_gradients(const std::string& folder) {
  const Workload workload = workload_of(language_models().at(2));
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const TrainConfig config = config_of("single", 1, folder, 0);
    const auto strategy = strategy_of(rank, config, workload);
    for (size_t phase = 0; phase < kPhases; ++phase)
      live_bytes::reset(static_cast<Phase>(phase));
    train_step(*strategy, config, 0);
    rank.observe("bytes", live_bytes::peak(Phase::backward)[MemoryClass::gradients]);
  });
  return run.at(0, "bytes");
}

TEST(OffloadOfSums, leaves_one_of_them_in_memory) {
  const TemporaryFolder folder;
  const int64_t all = most_gradients("");  // at the seventh part: of 4, of 2 and its own
  EXPECT_EQ(most_gradients(folder.path()), all / 3);
}

TEST(OffloadOfSums, says_at_once_that_they_do_not_fit) {
  const TemporaryFolder folder;
  const Workload workload = workload_of(language_models().at(2));
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const TrainConfig config = config_of("single", 1, folder.path(), 1 << 30);  // no moments in it
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
