#include <comm/communicator_options.h>
#include <fcntl.h>
#include <unistd.h>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "untrained_strategy.h"

namespace fsdp {
namespace {

std::string path_of_log;  // of the run under way

// Its loss is the number of lines that the log has when rank 0, which writes it, begins the step.
class LogReader : public UntrainedStrategy {
 public:
  using UntrainedStrategy::UntrainedStrategy;
  at::Tensor forward_backward(int64_t step) override {
    if (comm_->rank() != 0) return at::full({1}, static_cast<double>(step));
    return at::full({1}, static_cast<double>(lines_of(path_of_log).size()));
  }
};

class LossIsInfinite : public UntrainedStrategy {
 public:
  using UntrainedStrategy::UntrainedStrategy;
  at::Tensor forward_backward(int64_t) override {
    return at::full({1}, std::numeric_limits<double>::infinity());
  }
};

Outcome train_with_log(const FsdpImplementation& fsdp, const std::string& log) {
  TrainConfig config = small_run();
  config.log = path_of_log = log;
  return train(fsdp, config);
}

TEST(LogOfTraining, has_the_line_of_a_step_before_the_next_step_begins) {
  const TemporaryFolder folder;
  const Outcome run = train_with_log(with<LogReader>(), folder.path() + "/log");
  EXPECT_EQ(run.status, 0) << run.errors;
  const auto lines = lines_of(path_of_log);
  ASSERT_EQ(lines.size(), 4U);
  for (size_t step = 0; step < lines.size(); ++step) {
    const auto line = nlohmann::json::parse(lines[step]);
    EXPECT_EQ(line["step"], step);
    EXPECT_EQ(line["loss"], step) << "so many lines were there when the step began";
  }
}

TEST(LogOfTraining, ends_with_the_failure_of_a_run_that_fails) {
  const TemporaryFolder folder;
  EXPECT_EQ(train_with_log(with<LossIsInfinite>(), folder.path() + "/log").status, 1);
  const auto lines = lines_of(path_of_log);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(nlohmann::json::parse(lines[0])["loss"].is_null());
  const std::string failure = nlohmann::json::parse(lines[1])["failure"];
  EXPECT_CONTAINS(failure, "the loss is inf");
}

TEST(LogOfTraining, on_a_full_disk_costs_one_line_and_not_the_run) {
  const Outcome run = train_with_log(with<UntrainedStrategy>(), "/dev/full");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.errors, "--log /dev/full: No space left on device; training goes on without it\n");
}

TEST(TextOfTraining, is_read_once_before_the_ranks_are_there) {
  const TemporaryFolder folder;
  TrainConfig config = small_run();
  config.data = "text";
  config.text = {folder.write("text", std::string(1000, 'x'))};
  FsdpImplementation fsdp = with<UntrainedStrategy>();
  fsdp.make_strategy = [](const TrainConfig& of_rank, Workload,
                          std::shared_ptr<Communicator> comm) -> std::unique_ptr<Strategy> {
    if (of_rank.text_content == nullptr || of_rank.text_content->size() != 1000)
      throw std::logic_error("the text was not read before");
    return std::make_unique<UntrainedStrategy>(std::move(comm));
  };
  const Outcome run = train(fsdp, config);
  EXPECT_EQ(run.status, 0) << run.errors;
}

TEST(OutputOfTraining, that_can_not_be_written_is_told_when_all_files_are) {
  const TemporaryFolder folder;
  TrainConfig config = small_run();
  config.json = folder.path() + "/json";
  std::fflush(stdout);
  const int before = dup(STDOUT_FILENO), full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  testing::internal::CaptureStderr();
  dup2(full, STDOUT_FILENO);
  const int status = run_training(config, with<UntrainedStrategy>(), "fsdp train");
  dup2(before, STDOUT_FILENO);
  close(before);
  close(full);
  EXPECT_EQ(status, 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "fsdp train: rank 0 failed: standard output: No space left on device\n");
  EXPECT_EQ(lines_of(config.json).size(), 5U);
}

TEST(FaultOfTraining, that_is_not_reached_is_told) {
  TrainConfig config = small_run();
  config.comm.fault = Fault{Fault::Kind::kill, 1, 99'999};
  const Outcome run = train(with<UntrainedStrategy>(), config);
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.errors,
            "fsdp train: --fault was not reached: rank 1 made fewer than 100000 calls\n");
}

// A run ends where its model is built, or where the activations of its blocks are checkpointed.
TEST(ActivationsOfTraining, are_checkpointed_in_every_mode_if_the_config_says_so) {
  FsdpImplementation fsdp;
  fsdp.make_strategy = [](const TrainConfig&, Workload workload,
                          std::shared_ptr<Communicator>) -> std::unique_ptr<Strategy> {
    workload.build();
    throw std::logic_error("the model is built");
  };
  fsdp.shard_layout = [](const TrainConfig&, const Workload& workload) -> ShardLayout {
    workload.build();
    throw std::logic_error("the model is built");
  };
  fsdp.checkpoint_blocks = [](Module&, int every) {
    throw std::logic_error("every block of " + std::to_string(every) + " is checkpointed");
  };
  for (const char* mode : {"single", "ddp", "fsdp"}) {
    TrainConfig config;
    config.mode = mode;
    config.model = "gpt2-tiny";
    config.data = "published";
    config.steps = 0;
    EXPECT_CONTAINS(train(fsdp, config).errors, "the model is built");
    config.checkpoint_every = 3;
    EXPECT_CONTAINS(train(fsdp, config).errors, "every block of 3 is checkpointed");
  }
}

}  // namespace
}  // namespace fsdp
