#include <gtest/gtest.h>
#include <receipt/audit_command.h>

#include <algorithm>
#include <string>
#include <vector>

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

}  // namespace
}  // namespace fsdp
