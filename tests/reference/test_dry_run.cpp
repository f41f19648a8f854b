#include <report/telemetry.h>

#include <common/exit_status.h>
#include <common/expect_text.h>
#include <common/fork_process.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "trained.h"

namespace fsdp {
namespace {

// Returns what --dry-run prints on stdout, or the message of its error.
std::string dry_run_of(TrainConfig config, const TemporaryFolder& folder) {
  config.reports.dry_run = true;
  const std::string file = folder.path() + "/printed";
  status_of(fork_process([&] {
    EXPECT_NE(std::freopen(file.c_str(), "w", stdout), nullptr);
    try {
      run_training(config, {make_fsdp_strategy, shard_layout, checkpoint_blocks, construct_on_meta,
                            make_ddp_reduction});
    } catch (const std::exception& error) {
      std::printf("%s\n", error.what());
    }
    std::fflush(stdout);
    return 0;
  }));
  std::ifstream printed(file);
  return {std::istreambuf_iterator<char>(printed), {}};
}

TEST(DryRun, a_dry_run_prints_the_peak_memory_that_the_run_then_has_and_trains_nothing) {
  for (const Arranged& how :
       std::vector<Arranged>{{"single", 2}, {"ddp", 2}, {"fsdp", 2}, {"fsdp", 4, 2}}) {
    SCOPED_TRACE(named(how));
    const TemporaryFolder folder;
    TrainConfig config = config_of(how, /*parts=*/4, /*steps=*/2);
    config.checkpoint.dir = folder.path() + "/saved";
    const std::string printed = dry_run_of(config, folder);
    EXPECT_FALSE(std::filesystem::exists(config.checkpoint.dir));
    const auto run = train(config, folder);
    int64_t peak = 0;
    for (const auto& [phase, classes] : run["live_bytes"].items())
      peak = std::max(peak, classes["total"]["measured"].get<int64_t>());
    EXPECT_CONTAINS(printed, "peak of a rank: " + with_commas(peak) + " bytes of tensors\n");
    EXPECT_CONTAINS(printed, "dry run: the options are right, and nothing was trained\n");
  }
}

TEST(DryRun, a_dry_run_prints_how_many_parameters_are_trained) {
  const TemporaryFolder folder;
  TrainConfig config = config_of({"fsdp", 2}, 2, 2);
  config.model.freeze = "wte|wpe";
  EXPECT_CONTAINS(dry_run_of(config, folder),
                  "fsdp of gpt2-tiny (44,288 parameters, 41,488 trained), 2 ranks, batch 24 x 6 "
                  "tokens, 2 steps\n");
}

TEST(DryRun, a_dry_run_refuses_a_pattern_of_keep_fp32_that_matches_no_parameter) {
  const TemporaryFolder folder;
  TrainConfig config = config_of({"fsdp", 2}, 2, 2);
  config.precision.keep_fp32 = "no such name";
  config.precision.policy = {at::kBFloat16, at::kFloat};
  EXPECT_CONTAINS(dry_run_of(config, folder), "--keep-fp32 no such name");
}

}  // namespace
}  // namespace fsdp
