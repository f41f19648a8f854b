#include <gtest/gtest.h>
#include <train/trainer.h>

#include <common/temporary_folder.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "untrained_strategy.h"

namespace fsdp {
namespace {

std::string path_of_log;  // of the run under way

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(line);
  return lines;
}

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

template <class Fake>
FsdpImplementation implementation() {
  const auto make = [](const TrainConfig&, Workload,
                       std::shared_ptr<Communicator> comm) -> std::unique_ptr<Strategy> {
    return std::make_unique<Fake>(std::move(comm));
  };
  return {make, layout_of_nothing};
}

struct Outcome {
  int status;
  std::string errors;
};

Outcome train(const FsdpImplementation& fsdp, const std::string& log) {
  TrainConfig config;
  config.mode = "fsdp";
  config.world = 2;
  config.model = "gpt2-tiny";
  config.data = "published";
  config.steps = 4;
  config.batch = 2;
  config.seq = 4;
  config.comm.timeout = std::chrono::seconds(20);
  config.log = path_of_log = log;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = run_training(config, fsdp, "fsdp train");
  testing::internal::GetCapturedStdout();
  return {status, testing::internal::GetCapturedStderr()};
}

TEST(LogOfTraining, has_the_line_of_a_step_before_the_next_step_begins) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/log";
  const Outcome run = train(implementation<LogReader>(), path);
  EXPECT_EQ(run.status, 0) << run.errors;
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 4U);
  for (size_t step = 0; step < lines.size(); ++step) {
    const auto line = nlohmann::json::parse(lines[step]);
    EXPECT_EQ(line["step"], step);
    EXPECT_EQ(line["loss"], step) << "so many lines were there when the step began";
  }
}

TEST(LogOfTraining, comes_after_what_the_file_holds) {
  const TemporaryFolder folder;
  const std::string path = folder.write("log", "{\"step\":7}\n");
  EXPECT_EQ(train(implementation<LogReader>(), path).status, 0);
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[0], "{\"step\":7}");
}

TEST(LogOfTraining, ends_with_the_failure_of_a_run_that_fails) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/log";
  EXPECT_EQ(train(implementation<LossIsInfinite>(), path).status, 1);
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(nlohmann::json::parse(lines[0])["loss"].is_null());
  const std::string failure = nlohmann::json::parse(lines[1])["failure"];
  EXPECT_NE(failure.find("the loss is inf"), std::string::npos) << failure;
}

TEST(LogOfTraining, on_a_full_disk_costs_one_line_and_not_the_run) {
  const Outcome run = train(implementation<UntrainedStrategy>(), "/dev/full");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.errors, "--log /dev/full: No space left on device; training goes on without it\n");
}

}  // namespace
}  // namespace fsdp
