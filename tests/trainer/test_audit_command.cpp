#include <gtest/gtest.h>
#include <receipt/audit_command.h>

#include <algorithm>
#include <string>
#include <vector>

#include <common/expect_text.h>

namespace fsdp {
namespace {

// Returns the words of the command with which an audit recomputes the first step of a run.
// `options`: the options in the receipt. `own`: the auditor's own options.
std::vector<std::string> command_for(const std::string& options,
                                     const std::vector<std::string>& own = {}) {
  Receipt receipt;
  receipt.settings = {{"model", "gpt2-tiny"}, {"parts", 2}};
  receipt.options = options;
  receipt.world = 2;
  return audit_command({"/bin/true", "", own}, receipt, {0, 1, std::nullopt}, "hashes");
}

TEST(AuditCommand,
     an_audit_command_writes_option_and_value_as_one_word_so_that_no_value_acts_as_an_option) {
  const auto words = command_for("text = [\"a\", \"--json=x\"]\nseed = 7\n");
  for (const char* word : {"--text=a", "--text=--json=x", "--seed=7"})
    EXPECT_EQ(std::ranges::count(words, word), 1) << word;
  EXPECT_EQ(std::ranges::count(words, "--json=x"), 0);
}

TEST(AuditCommand, in_an_audit_command_options_of_the_auditor_replace_those_of_the_receipt) {
  const auto words = command_for("text = [\"a\", \"b\"]\nseed = 7\n", {"--text", "own.txt"});
  EXPECT_EQ(std::ranges::count(words, "--text=a"), 0);
  EXPECT_EQ(std::vector(words.end() - 2, words.end()),
            (std::vector<std::string>{"--text", "own.txt"}));
}

TEST(AuditCommand, an_audit_refuses_the_checkpoint_of_another_run_and_names_what_differs) {
  Receipt receipt;
  receipt.settings = {{"model", "gpt2-tiny"},
                      {"seed", 4},
                      {"parts", 2},
                      {"steps", 9},
                      {"lora", {{"rank", 8}, {"alpha", 2.0}}}};
  const Checkpoint own{"run/step-000010",
                       10,
                       {{"model", "gpt2-tiny"},
                        {"lora", {{"rank", 8}, {"alpha", 2.0}}},
                        {"seed", 4},
                        {"parts", 4},
                        {"steps", 20},
                        {"loss_scaler", {{"scale", 2}}}}};
  EXPECT_NO_THROW(require_checkpoint_of_run(receipt, own, "run"));
  const auto error = [&](const char* name, const nlohmann::ordered_json& value) {
    Checkpoint other = own;
    other.run[name] = value;
    return error_of<std::invalid_argument>(
        [&] { require_checkpoint_of_run(receipt, other, "run"); });
  };
  const std::string begin =
      "--checkpoint run: its checkpoint of step 10 is of another run than the receipt: it was "
      "trained ";
  const std::string end =
      "; give --checkpoint the folder with the checkpoints of the receipt's run";
  EXPECT_EQ(error("seed", 3), begin + "with seed 3, and the receipt's run with 4" + end);
  EXPECT_EQ(error("clip", 1.5), begin + "with clip 1.5, and the receipt's run with none" + end);
  EXPECT_EQ(error("text_sha256", "ab"), begin + "on another text" + end);
}

}  // namespace
}  // namespace fsdp
