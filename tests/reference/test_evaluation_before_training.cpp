#include <train/checkpoints.h>

#include <filesystem>

#include "trained.h"

namespace fsdp {
namespace {

constexpr int kEvaluatedParts = 4;

// Returns the config of a run that trains on additions modulo 7. Of the 49 pairs of numbers, 9 are
// held out for evaluations.
TrainConfig evaluated_config(const Arranged& how, int64_t steps, int64_t eval_every) {
  TrainConfig config = config_of(how, kEvaluatedParts, steps);
  config.data.kind = DataKind::modular;
  config.data.modulus = 7;
  config.data.eval_every = eval_every;
  config.training.seq = 3;
  return config;
}

struct EvaluatedRun {
  std::vector<nlohmann::json> log;
  nlohmann::json last;  // last line of the run's JSON file
};

EvaluatedRun run_of(TrainConfig config, const TemporaryFolder& folder) {
  config.reports.log = folder.path() + "/" + std::to_string(config.data.eval_every) + ".jsonl";
  std::filesystem::remove(config.reports.log);
  const auto last = train(config, folder);
  return {lines_of(config.reports.log), last};
}

// The test also trains without evaluations. This run must end with the same bits, because an
// evaluation must not change the training.
TEST(EvaluationBeforeTraining, the_first_log_line_has_the_held_out_loss_before_the_first_step) {
  nlohmann::json expected;
  for (const Arranged& how : std::vector<Arranged>{{"single", 2}, {"ddp", 2}, {"fsdp", 2}}) {
    SCOPED_TRACE(named(how));
    const TemporaryFolder folder;
    const auto run = run_of(evaluated_config(how, 2, 2), folder);
    ASSERT_EQ(run.log.size(), 2U);
    const auto& before = run.log[0].at("held_out_before");
    EXPECT_NE(before, run.log[1].at("held_out")) << "two steps must change the loss";
    EXPECT_FALSE(run.log[0].contains("held_out"));
    EXPECT_FALSE(run.log[1].contains("held_out_before"));
    if (expected.is_null()) expected = before;
    EXPECT_EQ(before, expected);
    EXPECT_EQ(run.last["live_bytes_mismatches"], 0);
    const auto without = run_of(evaluated_config(how, 2, 0), folder);
    EXPECT_FALSE(without.log[0].contains("held_out_before"));
    for (const char* number : {"param_sha256", "state_sha256", "comm_bytes"})
      EXPECT_EQ(run.last[number], without.last[number]) << number;
    for (size_t step = 0; step < 2; ++step)
      EXPECT_EQ(run.log[step]["loss"], without.log[step]["loss"]);
  }
}

// The evaluation before the first step runs all units. So the prefetcher knows their order, and the
// forward of the first step prefetches already.
TEST(EvaluationBeforeTraining, after_an_evaluation_the_live_bytes_of_one_step_are_as_predicted) {
  for (const Arranged& how : std::vector<Arranged>{{"ddp", 4}, {"fsdp", 4}, {"fsdp", 4, 2}}) {
    SCOPED_TRACE(named(how));
    const TemporaryFolder folder;
    EXPECT_EQ(train(evaluated_config(how, 1, 1), folder)["live_bytes_mismatches"], 0);
  }
}

// The second forward of the evaluation prefetches, because the first one has shown the order.
TEST(EvaluationBeforeTraining, the_bytes_of_a_run_without_steps_are_as_predicted) {
  for (const Arranged& how : std::vector<Arranged>{
           {"single", 2}, {"ddp", 2}, {"fsdp", 1}, {"fsdp", 2}, {"fsdp", 4}, {"fsdp", 4, 2}}) {
    for (const int64_t eval_every : {0, 1}) {
      SCOPED_TRACE(named(how) + ", --eval-every " + std::to_string(eval_every));
      const TemporaryFolder folder;
      EXPECT_EQ(train(evaluated_config(how, 0, eval_every), folder)["live_bytes_mismatches"], 0);
    }
  }
}

TEST(EvaluationBeforeTraining, a_run_without_steps_evaluates_the_held_out_rows_only_once) {
  const TemporaryFolder folder;
  TrainConfig no_steps = evaluated_config({"fsdp", 2}, 0, 1);
  no_steps.training.microbatches = 2;
  const auto none = run_of(no_steps, folder);
  const auto one = run_of(evaluated_config({"fsdp", 2}, 1, 2), folder);
  ASSERT_EQ(none.log.size(), 1U);
  EXPECT_NEAR(none.log[0].at("held_out_before").at("loss"),
              one.log.at(0).at("held_out_before").at("loss"), 1e-6);
  EXPECT_FALSE(none.log[0].contains("held_out"));
  EXPECT_EQ(none.last["live_bytes_mismatches"], 0);
}

TEST(EvaluationBeforeTraining, a_resumed_run_does_not_evaluate_before_its_first_step) {
  const TemporaryFolder folder;
  TrainConfig first = evaluated_config({"fsdp", 2}, 1, 1), second = first;
  first.checkpoint.dir = second.checkpoint.dir = folder.path() + "/saved";
  train(first, folder);
  second.training.steps = 2;
  go_on_from(find_checkpoint(second.checkpoint.dir), second);
  const auto run = run_of(second, folder);
  ASSERT_EQ(run.log.size(), 1U);
  EXPECT_FALSE(run.log[0].contains("held_out_before"));
  EXPECT_TRUE(run.log[0].contains("held_out"));
}

}  // namespace
}  // namespace fsdp
