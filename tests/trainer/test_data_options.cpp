#include <gtest/gtest.h>

#include "parsed.h"

namespace fsdp {
namespace {

TEST(DataOptions, a_run_trains_on_text_and_evaluates_nothing_if_nothing_is_said) {
  const TrainConfig config = parsed({});
  EXPECT_EQ(config.data, "text");
  EXPECT_FALSE(config.text.empty());
  EXPECT_EQ(config.eval_every, 0);
}

TEST(DataOptions, modular_addition_has_rows_of_three_tokens) {
  const TrainConfig config = parsed({"--data", "modular", "--modulus", "7", "--eval-every", "5"});
  EXPECT_EQ(config.modulus, 7);
  EXPECT_EQ(config.seq, 3);
  EXPECT_EQ(config.eval_every, 5);
  EXPECT_TRUE(config.text.empty());
  EXPECT_EQ(parsed({"--data", "modular"}).modulus, 31);
  EXPECT_EQ(refused({"--data", "modular", "--seq", "4"}),
            "--seq: a row of modular addition has 3 tokens");
  EXPECT_EQ(refused({"--data", "modular", "--modulus", "2"}),
            "--modulus must be at least 3, not 2");
}

TEST(DataOptions, the_recipe_of_modular_addition_sets_what_is_not_given) {
  const TrainConfig recipe = parsed({"--recipe", "modular"});
  EXPECT_EQ(recipe.data, "modular");
  EXPECT_EQ(recipe.model, "gpt2-tiny");
  EXPECT_EQ(recipe.batch, 256);
  EXPECT_EQ(recipe.optimizer.weight_decay, 0.5);
  EXPECT_EQ(recipe.clip, 1.0);
  const TrainConfig given =
      parsed({"--recipe", "modular", "--model", "small", "--batch", "64", "--lr", "1", "--clip",
              "2", "--weight-decay", "0", "--eval-every", "7", "--steps", "9"});
  EXPECT_EQ(given.data, "modular");
  EXPECT_EQ(given.model, "small");
  EXPECT_EQ(given.batch, 64);
  EXPECT_EQ(given.optimizer.lr, 1);
  EXPECT_EQ(given.optimizer.weight_decay, 0);
  EXPECT_EQ(given.clip, 2.0);
  EXPECT_EQ(given.eval_every, 7);
  EXPECT_EQ(given.steps, 9);
}

TEST(DataOptions, contradictions_are_refused) {
  EXPECT_EQ(refused({"--recipe", "published", "--text", "/"}),
            "--recipe and --text: give one of them");
  EXPECT_EQ(refused({"--recipe", "modular", "--data", "pattern"}),
            "--recipe and --data: give one of them");
  EXPECT_EQ(refused({"--data", "pattern", "--text", "/"}),
            "--text and --data pattern: give one of them");
  EXPECT_EQ(refused({"--data", "pattern", "--modulus", "7"}), "--modulus: needs --data modular");
  EXPECT_EQ(refused({"--recipe", "published", "--eval-every", "1"}),
            "--eval-every: --recipe published holds nothing out: its tokens are random");
}

TEST(DataOptions, a_text_is_a_plain_file_or_a_folder) {
  EXPECT_EQ(refused({"--text", "/no/such"}), "--text /no/such: no such file");
  EXPECT_EQ(refused({"--text", "/dev/zero"}),
            "--text /dev/zero: is neither a plain file nor a folder");
}

}  // namespace
}  // namespace fsdp
