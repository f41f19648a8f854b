#include <diff/run_hashes.h>

#include <common/expect_text.h>

#include "untrained_strategy.h"

// Tests the settings on which the numbers of a run depend.
namespace fsdp {
namespace {

std::string difference(const nlohmann::json& a, const nlohmann::json& b) {
  return error_of<std::invalid_argument>([&] { require_equal_settings(a, b); });
}

TEST(RunSetting, the_error_about_a_differing_setting_names_the_option_that_makes_it_equal) {
  EXPECT_EQ(difference({{"parts", 4}}, {{"parts", 6}}),
            "a has parts 4, and b 6: they must be equal; give both --microbatches 12");
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

TEST(RunSetting, print_settings_starts_no_rank_and_builds_no_model) {
  TrainConfig config = small_run();
  config.reports.print_settings = true;
  FsdpImplementation none{};
  const Outcome run = train(none, config);
  EXPECT_EQ(run.status, 0);
  const auto printed = nlohmann::json::parse(run.output);
  EXPECT_EQ(printed.at("model"), "gpt2-tiny");
  EXPECT_EQ(printed.at("steps"), 4);
}

}  // namespace
}  // namespace fsdp
