#include <diff/run_hashes.h>

#include <common/expect_text.h>

#include "untrained_strategy.h"

// The settings on which the numbers of a run depend.
namespace fsdp {
namespace {

std::string difference(const nlohmann::json& a, const nlohmann::json& b) {
  return error_of<std::invalid_argument>([&] { require_equal_settings(a, b); });
}

TEST(RunSettings, that_differ_are_named_with_the_option_that_makes_them_equal) {
  EXPECT_EQ(difference({{"parts", 4}}, {{"parts", 6}}),
            "a has parts 4, and b 6: they must be equal; give both --parts 12");
  EXPECT_EQ(difference({{"lr", 0.5}}, {{"lr", 0.25}}),
            "a has lr 0.5, and b 0.25: they must be equal; give both the same --lr");
  EXPECT_EQ(difference({{"weight_decay", 0}}, {{"weight_decay", 1}}),
            "a has weight_decay 0, and b 1: they must be equal; give both the same --weight-decay");
  EXPECT_EQ(difference({{"betas", {0.9, 0.5}}}, {{"betas", {0.9, 0.6}}}),
            "a has betas [0.9,0.5], and b [0.9,0.6]: they must be equal; give both the same "
            "--optimizer");
  EXPECT_EQ(difference({{"tokens", {1}}}, nlohmann::json::object()),
            "a has tokens [1], and b null: they must be equal; give both the same --tokens");
  EXPECT_NO_THROW(require_equal_settings({{"lr", 0.5}}, {{"lr", 0.5}}));
}

TEST(RunSettings, are_printed_without_a_rank_or_a_model) {
  TrainConfig config = small_run();
  config.reports.print_settings = true;
  FsdpImplementation none{};
  const Outcome run = train(none, config);
  EXPECT_EQ(run.status, 0);
  const auto printed = nlohmann::json::parse(run.output);
  EXPECT_EQ(printed.at("model"), "gpt2-tiny");
  EXPECT_EQ(printed.at("steps"), 4);
}

TEST(RunOptions, with_which_a_run_began_stay_when_it_goes_on) {
  const TemporaryFolder folder;
  TrainConfig config = small_run();
  config.checkpoint.dir = folder.path();
  config.checkpoint.save_every = 4;
  config.reports.given = "steps = 4\n";
  EXPECT_EQ(train(with<UntrainedStrategy>(), config).errors, "");
  go_on_from(find_checkpoint(folder.path()), config);
  config.training.steps = 8;
  config.reports.given = "steps = 8\n";
  EXPECT_EQ(train(with<UntrainedStrategy>(), config).errors, "");
  EXPECT_EQ(content_of(folder.path() + "/run.toml"), "steps = 4\n");
  EXPECT_EQ(content_of(folder.path() + "/run-from-000004.toml"), "steps = 8\n");
}

// A save of step 2 that was broken off.
TEST(CheckpointsOfRun, lose_what_a_broken_save_has_left_when_the_run_begins) {
  const TemporaryFolder folder;
  folder.write("step-000002.part/rank-0000-of-0002.safetensors", "half");
  TrainConfig config = small_run();
  config.checkpoint.dir = folder.path();
  config.checkpoint.save_every = 4;
  EXPECT_EQ(train(with<UntrainedStrategy>(), config).errors, "");
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/step-000002.part"));
  EXPECT_EQ(latest_step(folder.path()), 4);
}

}  // namespace
}  // namespace fsdp
