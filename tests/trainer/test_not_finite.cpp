#include <gtest/gtest.h>
#include <train/trainer.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "untrained_strategy.h"

namespace fsdp {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Each step has the losses and the norm that it is given.
class FakeStrategy : public UntrainedStrategy {
 public:
  FakeStrategy(std::shared_ptr<Communicator> comm, std::vector<double> losses,
               std::vector<double> norms)
      : UntrainedStrategy(std::move(comm)), losses_(std::move(losses)), norms_(std::move(norms)) {}

  // Rank 1 has the losses; the others' are 1.
  at::Tensor forward_backward(int64_t) override {
    return at::full({1}, comm_->rank() == 1 ? losses_.at(step_) : 1.0);
  }
  double clip_grad_norm(double, double) override { return norms_.at(step_); }
  void step() override { ++step_; }
  void skip_step() override { ++step_; }

 private:
  std::vector<double> losses_, norms_;
  size_t step_{};
};

const FsdpImplementation kBrokenLoss{
    [](const TrainConfig&, Workload,
       std::shared_ptr<Communicator> comm) -> std::unique_ptr<Strategy> {
      return std::make_unique<FakeStrategy>(std::move(comm), std::vector{1.0, kNan, 1.0, 1.0},
                                            std::vector{1.0, 1.0, 1.0, 1.0});
    },
    layout_of_nothing};
const FsdpImplementation kBrokenNorm{
    [](const TrainConfig&, Workload,
       std::shared_ptr<Communicator> comm) -> std::unique_ptr<Strategy> {
      return std::make_unique<FakeStrategy>(std::move(comm), std::vector{1.0, 1.0, 1.0, 1.0},
                                            std::vector{1.0, 1.0, kInf, 1.0});
    },
    layout_of_nothing};
const FsdpImplementation kBrokenEvaluation{
    [](const TrainConfig&, Workload,
       std::shared_ptr<Communicator> comm) -> std::unique_ptr<Strategy> {
      return std::make_unique<FakeStrategy>(std::move(comm), std::vector{kNan}, std::vector{1.0});
    },
    layout_of_nothing};

struct Result {
  int status;
  std::string errors;
  std::vector<nlohmann::json> lines;  // of the JSON file
};

Result train(const FsdpImplementation& fsdp, int64_t steps, bool allow_nan,
             std::optional<LossScaler> loss_scaler = {}) {
  TrainConfig config;
  config.mode = "fsdp";
  config.world = 3;
  config.model = "gpt2-tiny";
  config.data = "published";
  config.steps = steps;
  config.batch = 3;
  config.seq = 4;
  config.clip = 1.0;
  config.allow_nan = allow_nan;
  config.loss_scaler = loss_scaler;
  config.comm.timeout = std::chrono::seconds(20);
  config.json = testing::TempDir() + "not_finite." + std::to_string(getpid()) + ".json";
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Result result{run_training(config, fsdp, "fsdp train"), "", {}};
  testing::internal::GetCapturedStdout();
  result.errors = testing::internal::GetCapturedStderr();
  std::ifstream file(config.json);
  for (std::string line; std::getline(file, line);)
    result.lines.push_back(nlohmann::json::parse(line));
  std::filesystem::remove(config.json);
  return result;
}

void expect_failure(const Result& result, const std::string& what, size_t steps) {
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.errors.find("ended the run: " + what), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("smaller learning rate"), std::string::npos) << result.errors;
  ASSERT_EQ(result.lines.size(), steps + 1);
  EXPECT_EQ(result.lines.back()["failure"].get<std::string>().find(what), 0U);
}

TEST(TrainingThatIsNotFinite, ends_at_a_loss_and_names_step_and_rank) {
  const Result result = train(kBrokenLoss, 4, false);
  expect_failure(result, "the loss is nan (not finite on rank 1) in step 2 of 4", 2);
  EXPECT_EQ(result.lines[0]["loss"], 1.0);
  EXPECT_TRUE(result.lines[1]["loss"].is_null());
}

TEST(TrainingThatIsNotFinite, ends_at_the_norm_of_the_gradients) {
  const Result result = train(kBrokenNorm, 4, false);
  expect_failure(result, "the norm of the gradients is inf in step 3 of 4", 3);
}

TEST(TrainingThatIsNotFinite, skips_a_step_and_goes_on_if_the_loss_is_scaled) {
  const Result result = train(kBrokenNorm, 4, false, LossScaler(8, 2));
  EXPECT_EQ(result.status, 0) << result.errors;
  ASSERT_EQ(result.lines.size(), 5U);
  EXPECT_EQ(result.lines[1]["grad_norm"], 1.0);
  EXPECT_TRUE(result.lines[2]["grad_norm"].is_null());
  const auto& last = result.lines.back();
  EXPECT_EQ(last["skipped_steps"], 1);
  EXPECT_EQ(last["loss_scaler"],
            nlohmann::json({{"scale", 8}, {"growth_interval", 2}, {"finite_steps", 1}}));
}

TEST(TrainingThatIsNotFinite, ends_if_the_loss_cannot_be_scaled_less) {
  const Result result = train(kBrokenNorm, 4, false, LossScaler(1));
  expect_failure(result, "the norm of the gradients is inf in step 3 of 4", 3);
}

TEST(TrainingThatIsNotFinite, ends_at_an_evaluation) {
  const Result result = train(kBrokenEvaluation, 0, false);
  expect_failure(result, "the loss is nan (not finite on rank 1) before training", 1);
}

TEST(TrainingThatIsNotFinite, continues_if_nan_is_allowed) {
  for (const auto* fsdp : {&kBrokenLoss, &kBrokenNorm}) {
    const Result result = train(*fsdp, 4, true);
    EXPECT_EQ(result.status, 0) << result.errors;
    ASSERT_EQ(result.lines.size(), 5U);
    EXPECT_EQ(result.lines.back()["final"], true);
  }
}

}  // namespace
}  // namespace fsdp
