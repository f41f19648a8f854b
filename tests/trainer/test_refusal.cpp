#include <gtest/gtest.h>

#include <common/expect_text.h>

#include "parsed.h"

// Tests the errors of command lines that cannot be parsed.
namespace fsdp {
namespace {

TEST(Refusal, the_error_of_an_unknown_option_names_the_nearest_one) {
  const auto nearest = [](const std::string& option, const std::string& other) {
    EXPECT_EQ(refused({option, "1"}),
              "there is no option " + option + "; the nearest one is " + other);
  };
  nearest("--stpes", "--steps");
  nearest("--step", "--steps");
  nearest("--chekpoint-dir", "--checkpoint-dir");
  nearest("--precision", "--param-dtype");
  nearest("--learning-rate", "--lr");
  nearest("--dtype", "--param-dtype");
  EXPECT_EQ(refused({"--steps=3", "--worlds=2"}),
            "there is no option --worlds; the nearest one is --world");
  EXPECT_EQ(refused({"--xyzzy"}), "there is no option --xyzzy; --help lists all");
  EXPECT_EQ(refused({"fsdp"}), "fsdp: belongs to no option");
}

TEST(Refusal, the_error_of_an_unknown_value_lists_the_values_that_the_option_takes) {
  for (const auto& [option, words] : std::vector<std::pair<std::string, std::string>>{
           {"--mode", "single, ddp or fsdp"},
           {"--data", "text, tokens, modular or pattern"},
           {"--recipe", "published or modular"},
           {"--param-dtype", "fp32, bf16 or fp16"},
           {"--reduce-dtype", "fp32, bf16 or fp16"},
           {"--prefetch", "on or off"},
           {"--reduce-gradients", "each or last"},
           {"--stack", "reference or mine"},
           {"--lr-decay", "cosine or linear"},
           {"--optimizer", "adamw, sgd or muon"},
           {"--offload", "none or optimizer"},
           {"--checkpoint-format", "sharded or full"},
           {"--backend", "auto, shm, gloo or nccl"},
           {"--device", "cpu or cuda"},
           {"--compare", "always, first or never"},
           {"--on-lost-host", "end or continue"}}) {
    EXPECT_EQ(refused({option, "fdsp"}), option + " must be " + words + ", not fdsp");
  }
  EXPECT_CONTAINS(refused({"--strategy", "fdsp"}),
                  "--strategy must be full, grad_op, no, hybrid, _hybrid_shard_zero2, ");
}

TEST(Refusal, missing_and_surplus_values_of_options_are_reported) {
  EXPECT_EQ(refused({"--lr"}),
            "--lr: needs a value: learning rate (default 0.1 with sgd, else 0.001 or the rate of "
            "--recipe)");
  EXPECT_EQ(refused({"--lr", "--clip", "1"}), "--lr must be a number, not --clip");
  EXPECT_EQ(refused({"--lr", "1", "--lr", "2"}), "--lr: is given more than once");
  EXPECT_EQ(refused({"--allow-nan=7"}).find("CLI"), std::string::npos);
  EXPECT_EQ(refused({"--tokens", "a", "b", "c"}), "--tokens: takes at most 2 values");
  EXPECT_EQ(refused({"--capture", "x"}), "--capture: needs --hashes");
}

}  // namespace
}  // namespace fsdp
