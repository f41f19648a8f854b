#include <common/expect_text.h>
#include <common/temporary_folder.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "untrained_strategy.h"

namespace fsdp {
namespace {

std::string path_of_log;  // path of the --log file of the current run

// A strategy that reads the log. On rank 0, which writes the log, the loss of a step is the number
// of lines that the log has when the step begins. On the other ranks the loss is the number of the
// step.
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
  config.reports.log = path_of_log = log;
  return train(fsdp, config);
}

TEST(TrainingLog, the_line_of_a_step_is_in_the_log_before_the_next_step_begins) {
  const TemporaryFolder folder;
  const Outcome run = train_with_log(with<LogReader>(), folder.path() + "/log");
  EXPECT_EQ(run.status, 0) << run.errors;
  const auto lines = lines_of(path_of_log);
  ASSERT_EQ(lines.size(), 4U);
  for (size_t step = 0; step < lines.size(); ++step) {
    const auto line = nlohmann::json::parse(lines[step]);
    EXPECT_EQ(line["step"], step);
    EXPECT_EQ(line["loss"], step) << "wrong number of lines when the step began";
  }
}

TEST(TrainingLog, with_log_every_the_log_has_the_first_the_last_and_each_nth_step) {
  const TemporaryFolder folder;
  TrainConfig config = small_run();
  config.reports.log = path_of_log = folder.path() + "/log";
  config.reports.log_every = 3;
  const Outcome run = train(with<UntrainedStrategy>(), config);
  EXPECT_EQ(run.status, 0) << run.errors;
  std::vector<int64_t> steps;
  for (const std::string& line : lines_of(path_of_log))
    steps.push_back(nlohmann::json::parse(line)["step"]);
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 2, 3}));
}

TEST(TrainingLog, the_log_of_a_failed_run_ends_with_the_failure) {
  const TemporaryFolder folder;
  EXPECT_EQ(train_with_log(with<LossIsInfinite>(), folder.path() + "/log").status, 1);
  const auto lines = lines_of(path_of_log);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(nlohmann::json::parse(lines[0])["loss"].is_null());
  const std::string failure = nlohmann::json::parse(lines[1])["failure"];
  EXPECT_CONTAINS(failure, "the loss is inf");
}

TEST(TrainingLog, if_the_disk_is_full_the_log_ends_but_training_continues) {
  const Outcome run = train_with_log(with<UntrainedStrategy>(), "/dev/full");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.errors,
            "--log /dev/full: No space left on device; training continues without it\n");
}

}  // namespace
}  // namespace fsdp
