#include <gtest/gtest.h>

#include <common/temporary_folder.h>

#include "parsed.h"

namespace fsdp {
namespace {

TEST(DataOption, by_default_a_run_trains_on_text_and_does_not_evaluate) {
  const TrainConfig config = parsed({});
  EXPECT_EQ(config.data.kind, DataKind::text);
  EXPECT_FALSE(config.data.text.empty());
  EXPECT_EQ(config.data.eval_every, 0);
}

TEST(DataOption, the_option_data_modular_sets_rows_of_three_tokens) {
  const TrainConfig config = parsed({"--data", "modular", "--modulus", "7", "--eval-every", "5"});
  EXPECT_EQ(config.data.modulus, 7);
  EXPECT_EQ(config.training.seq, 3);
  EXPECT_EQ(config.data.eval_every, 5);
  EXPECT_TRUE(config.data.text.empty());
  EXPECT_EQ(parsed({"--data", "modular"}).data.modulus, 31);
  EXPECT_EQ(refused({"--data", "modular", "--seq", "4"}),
            "--seq: a row of modular addition has 3 tokens");
  EXPECT_EQ(refused({"--data", "modular", "--modulus", "2"}),
            "--modulus must be at least 3, not 2");
}

TEST(DataOption, the_recipe_modular_sets_the_options_that_are_not_given) {
  const TrainConfig recipe = parsed({"--recipe", "modular"});
  EXPECT_EQ(recipe.data.kind, DataKind::modular);
  EXPECT_EQ(recipe.model.name, "gpt2-tiny");
  EXPECT_EQ(recipe.training.batch, 256);
  EXPECT_EQ(recipe.optimizer.weight_decay, 0.5);
  EXPECT_EQ(recipe.optimizer.clip, 1.0);
  const TrainConfig given =
      parsed({"--recipe", "modular", "--model", "small", "--batch", "64", "--lr", "1", "--clip",
              "2", "--weight-decay", "0", "--eval-every", "7", "--steps", "9"});
  EXPECT_EQ(given.data.kind, DataKind::modular);
  EXPECT_EQ(given.model.name, "small");
  EXPECT_EQ(given.training.batch, 64);
  EXPECT_EQ(given.optimizer.lr, 1);
  EXPECT_EQ(given.optimizer.weight_decay, 0);
  EXPECT_EQ(given.optimizer.clip, 2.0);
  EXPECT_EQ(given.data.eval_every, 7);
  EXPECT_EQ(given.training.steps, 9);
}

TEST(DataOption, contradicting_data_options_are_refused) {
  EXPECT_EQ(refused({"--recipe", "published", "--text", "/"}),
            "--recipe and --text: give one of them");
  EXPECT_EQ(refused({"--recipe", "modular", "--data", "pattern"}),
            "--recipe and --data: give one of them");
  EXPECT_EQ(refused({"--data", "pattern", "--text", "/"}),
            "--text and --data pattern: give one of them");
  EXPECT_EQ(refused({"--text", "/", "--tokens", "/dev/null"}),
            "--text and --tokens: give one of them");
  EXPECT_EQ(refused({"--data", "pattern", "--modulus", "7"}), "--modulus: needs --data modular");
  EXPECT_EQ(refused({"--recipe", "published", "--eval-every", "1"}),
            "--eval-every: --recipe published holds nothing out: its tokens are random");
}

TEST(DataOption, the_error_of_the_unknown_option_tokenizer_advises_fsdp_tokenize) {
  EXPECT_EQ(refused({"--tokenizer", "gpt2", "--text", "book.txt"}),
            "there is no option --tokenizer; train takes token ids: make them with ./fsdp tokenize "
            "--tokenizer FOLDER --input TEXT --output FILE, and give --tokens FILE");
}

TEST(DataOption, the_option_text_must_name_a_regular_file_or_a_folder) {
  EXPECT_EQ(refused({"--text", "/no/such"}), "--text /no/such: no such file");
  EXPECT_EQ(refused({"--text", "/dev/zero"}),
            "--text /dev/zero: is neither a plain file nor a folder");
}

TEST(DataOption, a_vocabulary_that_lacks_an_id_of_the_data_is_refused_before_training) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text", std::string(300, 'a') + "\xc3\xbc" + "zz");
  EXPECT_EQ(refused({"--text", text, "--seq", "8", "--vocabulary", "128"}),
            "--text " + text +
                ": byte 300 is 195, and the model has 128 ids; give --vocabulary 256 or more");
  EXPECT_EQ(refused({"--text", text, "--seq", "8", "--vocabulary", "196"}), "accepted");
  EXPECT_EQ(refused({"--data", "modular", "--vocabulary", "31"}),
            "--vocabulary 31: addition modulo 31 has 32 ids; give that many or more");
  EXPECT_EQ(refused({"--data", "modular", "--vocabulary", "32"}), "accepted");
}

}  // namespace
}  // namespace fsdp
