#include <train/watch.h>
#include <trainer/parsed.h>

#include <filesystem>

#include <common/expect_text.h>

#include "trained.h"

namespace fsdp {
namespace {

// Returns the configuration of a run of `steps` steps on `world` ranks that saves each second step.
// During the run, --watch draws microbatches and computes them again. The program reference_train
// computes them, because this test program cannot train from the command line.
TrainConfig watched_run(const std::string& mode, int world, int64_t steps,
                        const TemporaryFolder& folder) {
  TrainConfig config = parsed({"--mode",
                               mode,
                               "--world",
                               std::to_string(world),
                               "--microbatches",
                               "4",
                               "--batch",
                               "8",
                               "--model",
                               "gpt2-tiny",
                               "--seq",
                               "6",
                               "--steps",
                               std::to_string(steps),
                               "--checkpoint-dir",
                               folder.path() + "/run",
                               "--save-every",
                               "2",
                               "--keep",
                               "4",
                               "--receipt",
                               folder.path() + "/receipt",
                               "--watch",
                               "60000"});
  const auto own = std::filesystem::read_symlink("/proc/self/exe");
  config.reports.watch_program = own.parent_path() / "reference_train";
  return config;
}

struct Ended {
  int status;
  std::string output, errors;
};

Ended run(const TrainConfig& config, const FsdpImplementation& fsdp) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = run_training(config, fsdp);
  const std::string errors = testing::internal::GetCapturedStderr();
  return {status, testing::internal::GetCapturedStdout(), errors};
}

constexpr FsdpImplementation kRight{make_fsdp_strategy, shard_layout, checkpoint_blocks,
                                    construct_on_meta, make_ddp_reduction};

// Returns a strategy in which rank 1 computes a wrong bit in each microbatch, as a broken processor
// would.
std::unique_ptr<Strategy> make_wrong_on_rank_1(const TrainConfig& config, Workload workload,
                                               std::shared_ptr<Communicator> comm) {
  if (comm->rank() == 1) {
    workload.build = [build = workload.build] {
      auto model = build();
      distinct_parameters(*model).back().tensor.register_hook([](const at::Tensor& gradient) {
        const at::Tensor changed = gradient.contiguous().clone();
        changed.view({-1}).view(at::kInt)[0].bitwise_xor_(1 << 20);
        return changed;
      });
      return model;
    };
  }
  return make_fsdp_strategy(config, std::move(workload), comm);
}

TEST(Watch, in_every_mode_the_option_watch_finds_only_equal_events_in_a_correct_run) {
  for (const auto& [mode, world] : {std::pair("single", 1), {"ddp", 2}, {"fsdp", 4}}) {
    SCOPED_TRACE(mode);
    const TemporaryFolder folder;
    const Ended ended = run(watched_run(mode, world, 4, folder), kRight);
    EXPECT_EQ(ended.status, 0) << ended.errors;
    EXPECT_CONTAINS(ended.output, "computed again: 1; equal events: ");
    EXPECT_LACKS(ended.output, "equal events: 0");
    EXPECT_CONTAINS(ended.output, "receipt: ");
  }
}

// The run has so many steps that it would take minutes if it were not ended early.
TEST(Watch, a_run_with_the_option_watch_ends_and_names_the_rank_that_computes_wrong_bits) {
  const TemporaryFolder folder;
  const Ended ended = run(watched_run("fsdp", 2, 100'000, folder),
                          {make_wrong_on_rank_1, shard_layout, checkpoint_blocks, construct_on_meta,
                           make_ddp_reduction});
  EXPECT_NE(ended.status, 0);
  EXPECT_CONTAINS(ended.errors, "rank 0 stopped the training: step ");
  EXPECT_CONTAINS(ended.errors, "gradient of the microbatch: ");
  EXPECT_CONTAINS(ended.errors, ", made by rank 1 on ");
}

TEST(Watch, a_run_with_the_option_watch_continues_if_recomputing_a_microbatch_fails) {
  const TemporaryFolder folder;
  TrainConfig config = watched_run("fsdp", 2, 6, folder);
  config.reports.watch_program = "/bin/false";
  const Ended ended = run(config, kRight);
  EXPECT_EQ(ended.status, 0) << ended.errors;
  EXPECT_CONTAINS(ended.output, "could not be computed again: the process left by exit(1)");
  EXPECT_CONTAINS(ended.output, "computed again: 0; equal events: 0");
}

}  // namespace
}  // namespace fsdp
