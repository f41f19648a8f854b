#include <common/expect_text.h>
#include <common/temporary_folder.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "untrained_strategy.h"

namespace fsdp {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The values that the fake strategy returns in each step of the current run: the loss of rank 1
// (the loss of the other ranks is 1), and the norm of the gradients.
struct Values {
  std::vector<double> losses{1, 1, 1, 1}, norms{1, 1, 1, 1};
};
Values values;

class FakeStrategy : public UntrainedStrategy {
 public:
  using UntrainedStrategy::UntrainedStrategy;
  at::Tensor forward_backward(int64_t) override {
    return at::full({1}, comm_->rank() == 1 ? values.losses.at(step_) : 1.0);
  }
  double clip_grad_norm(double, double) override { return values.norms.at(step_); }
  void step() override { ++step_; }
  void skip_step() override { ++step_; }

 private:
  size_t step_{};
};

const Values kBrokenLoss{.losses = {1, kNan, 1, 1}}, kBrokenNorm{.norms = {1, 1, kInf, 1}};

struct Result : Outcome {
  std::vector<nlohmann::json> lines;  // the parsed lines of the run's JSON file (--json)
};

Result train(const Values& of_run, const std::function<void(TrainConfig&)>& change) {
  const TemporaryFolder folder;
  TrainConfig config = small_run(3);
  config.optimizer.clip = 1.0;
  config.reports.json = folder.path() + "/json";
  change(config);
  values = of_run;
  Result result{train(with<FakeStrategy>(), config), {}};
  for (const std::string& line : lines_of(config.reports.json))
    result.lines.push_back(nlohmann::json::parse(line));
  return result;
}

void unchanged(TrainConfig&) {}

void expect_failure(const Result& result, const std::string& what, size_t steps) {
  EXPECT_EQ(result.status, 1);
  EXPECT_CONTAINS(result.errors, "stopped the training: " + what);
  EXPECT_CONTAINS(result.errors, "try a smaller --lr, set --clip, or continue with --allow-nan");
  ASSERT_EQ(result.lines.size(), steps + 1);
  EXPECT_EQ(result.lines.back()["failure"].get<std::string>().find(what), 0U);
}

TEST(NonfiniteTraining, a_nonfinite_loss_ends_the_run_with_an_error_that_names_step_and_rank) {
  const Result result = train(kBrokenLoss, unchanged);
  expect_failure(result, "the loss is nan (not finite on rank 1) in step 2 of 4", 2);
  EXPECT_EQ(result.lines[0]["loss"], 1.0);
  EXPECT_TRUE(result.lines[1]["loss"].is_null());
}

TEST(NonfiniteTraining, a_nonfinite_gradient_norm_ends_the_run_if_the_loss_scale_cannot_shrink) {
  const auto once = [](TrainConfig& config) { config.precision.loss_scaler = LossScaler(1); };
  for (const auto& change : {std::function<void(TrainConfig&)>(unchanged), {once}})
    expect_failure(train(kBrokenNorm, change), "the norm of the gradients is inf in step 3 of 4",
                   3);
}

TEST(NonfiniteTraining, a_nonfinite_gradient_norm_skips_the_step_if_the_loss_is_scaled) {
  const Result result = train(
      kBrokenNorm, [](TrainConfig& config) { config.precision.loss_scaler = LossScaler(8, 2); });
  EXPECT_EQ(result.status, 0) << result.errors;
  ASSERT_EQ(result.lines.size(), 5U);
  EXPECT_EQ(result.lines[1]["grad_norm"], 1.0);
  EXPECT_TRUE(result.lines[2]["grad_norm"].is_null());
  const auto& last = result.lines.back();
  EXPECT_EQ(last["skipped_steps"], 1);
  EXPECT_EQ(last["loss_scaler"],
            nlohmann::json({{"scale", 8}, {"growth_interval", 2}, {"finite_steps", 1}}));
}

TEST(NonfiniteTraining, a_nonfinite_loss_of_an_evaluation_ends_the_run) {
  const Result result =
      train({.losses = {kNan}}, [](TrainConfig& config) { config.training.steps = 0; });
  expect_failure(result, "the loss is nan (not finite on rank 1) before training", 1);
}

TEST(NonfiniteTraining, a_run_with_allow_nan_continues_after_a_nonfinite_loss) {
  for (const Values& broken : {kBrokenLoss, kBrokenNorm}) {
    const Result result =
        train(broken, [](TrainConfig& config) { config.training.allow_nan = true; });
    EXPECT_EQ(result.status, 0) << result.errors;
    ASSERT_EQ(result.lines.size(), 5U);
    EXPECT_EQ(result.lines.back()["final"], true);
  }
}

}  // namespace
}  // namespace fsdp
