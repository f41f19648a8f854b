#include <gtest/gtest.h>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "parsed.h"

namespace fsdp {
namespace {

TEST(ReceiptOption, a_receipt_has_only_the_options_on_which_the_trained_numbers_depend) {
  const TemporaryFolder folder;
  const std::string options = parsed({"--mode",
                                      "fsdp",
                                      "--world",
                                      "2",
                                      "--steps",
                                      "9",
                                      "--seed",
                                      "7",
                                      "--lr",
                                      "0.5",
                                      "--prefetch",
                                      "off",
                                      "--checkpoint-dir",
                                      folder.path() + "/run",
                                      "--save-every",
                                      "3",
                                      "--log",
                                      "/dev/null",
                                      "--receipt",
                                      folder.path() + "/receipt",
                                      "--reduce-gradients",
                                      "last",
                                      "--microbatches",
                                      "4",
                                      "--stop-after",
                                      "6"})
                                  .reports.audited_options;
  for (const char* line :
       {"steps = 9\n", "seed = 7\n", "lr = 0.5\n", "reduce-gradients = \"last\"\n"})
    EXPECT_CONTAINS(options, line);
  EXPECT_EQ(std::ranges::count(options, '\n'), 4) << options;
}

TEST(ReceiptOption, the_options_that_a_run_saves_omit_the_options_of_its_receipt) {
  EXPECT_EQ(parsed({"--receipt", "/dev/null", "--receipt-sample", "4", "--steps", "9"})
                .reports.saved_options,
            "steps = 9\n");
}

// Returns why check_audited_options() refuses the options, or "accepted".
std::string refusal_of_receipt(const std::string& options, bool no_files = false,
                               const std::set<std::string>& replaced = {}) {
  try {
    check_audited_options(options, no_files, replaced);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ReceiptOption, an_audit_accepts_all_options_that_a_run_writes_into_its_receipt) {
  const std::string written =
      parsed({"--model", "gpt2-tiny", "--lora", "2", "--optimizer", "muon", "--param-dtype", "bf16",
              "--strategy", "hybrid", "--shard-size", "2", "--mode", "single", "--world", "4",
              "--threads", "2", "--allow-nan"})
          .reports.audited_options;
  EXPECT_EQ(std::ranges::count(written, '\n'), 8) << written;
  EXPECT_EQ(refusal_of_receipt(written, /*no_files=*/true), "accepted");
}

TEST(ReceiptOption, an_audit_refuses_options_that_no_run_writes_into_its_receipt) {
  for (const char* name : {"json", "log", "receipt", "hashes", "trace", "profile", "record",
                           "config", "stack", "resume", "checkpoint-dir", "offload-dir", "mode",
                           "world", "stop-after", "help", "h", "unknown", "json=/tmp/x --seed"})
    EXPECT_EQ(refusal_of_receipt("seed = 1\n\"" + std::string(name) + "\" = 'x'\n"),
              "--" + std::string(name) + ": no run writes it into a receipt");
  EXPECT_CONTAINS(refusal_of_receipt("seed = --json"), "line 1: ");
}

TEST(ReceiptOption, an_audit_with_no_files_refuses_options_in_a_receipt_that_name_files) {
  for (const std::string name : {"text", "tokens", "init"}) {
    const std::string options = "seed = 1\n" + name + " = '/etc/passwd'\n";
    EXPECT_EQ(refusal_of_receipt(options), "accepted");
    EXPECT_EQ(refusal_of_receipt(options, true),
              "--" + name + ": names a file; give your own with --options");
    EXPECT_EQ(refusal_of_receipt(options, true, {name}), "accepted");
  }
}

// Mode single imitates an FSDP run on several ranks: there, --strategy and --shard-size decide in
// which order gradients are added, so a receipt names them. In mode ddp they have no effect, so a
// receipt must not name them.
TEST(ReceiptOption, a_receipt_of_ddp_does_not_name_options_of_sharding) {
  const std::vector<std::string> all{"--world", "4", "--strategy", "hybrid", "--shard-size", "2"};
  for (const auto& [mode, named] : {std::pair("fsdp", true), {"single", true}, {"ddp", false}}) {
    std::vector<std::string> words = all;
    words.insert(words.end(), {"--mode", mode});
    testing::internal::CaptureStderr();
    const std::string options = parsed(words).reports.audited_options;
    testing::internal::GetCapturedStderr();
    EXPECT_EQ(options.find("shard-size") != std::string::npos, named) << mode;
  }
}

TEST(ReceiptOption, invalid_combinations_of_receipt_options_are_refused) {
  EXPECT_EQ(refused({"--receipt-sample", "4"}), "--receipt-sample: needs --receipt");
  EXPECT_EQ(refused({"--receipt", "/dev/null", "--steps", "0"}),
            "--receipt: needs a step; --steps is 0");
  EXPECT_CONTAINS(refused({"--receipt", "/dev/null", "--hashes", "h"}), "--hashes");
  EXPECT_CONTAINS(refused({"--receipt", "/nowhere/receipt"}), "--receipt /nowhere/receipt: ");
  EXPECT_CONTAINS(refused({"--receipt", "x", "--log", "x"}), "name one file, x");
}

TEST(ReceiptOption, an_invalid_receipt_key_is_refused_before_the_run) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text", "no key\n");
  EXPECT_CONTAINS(refused({"--receipt", "/dev/null", "--receipt-key", text}),
                  "--receipt-key " + text + ": has no private key of Ed25519");
  EXPECT_EQ(refused({"--receipt", "/dev/null", "--receipt-key", ""}),
            "--receipt-key : No such file or directory");
  const std::string key =
      folder.write("key",
                   "-----BEGIN PRIVATE KEY-----\n"
                   "MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7\n"
                   "-----END PRIVATE KEY-----\n");
  EXPECT_CONTAINS(refused({"--receipt", key, "--receipt-key", key}), "name one file, " + key);
  EXPECT_EQ(refused({"--receipt-key", key}), "--receipt-key: needs --receipt");
}

TEST(ReceiptOption, the_option_only_microbatch_is_refused_for_a_microbatch_that_does_not_exist) {
  const TemporaryFolder folder;
  const std::string hashes = folder.path() + "/hashes";
  EXPECT_EQ(refused({"--only-microbatch", "0"}),
            "--only-microbatch 0: needs --mode single and --hashes");
  EXPECT_EQ(refused({"--mode", "fsdp", "--hashes", hashes, "--only-microbatch", "0"}),
            "--only-microbatch 0: needs --mode single and --hashes");
  EXPECT_EQ(
      refused({"--mode", "single", "--world", "4", "--hashes", hashes, "--only-microbatch", "4"}),
      "--only-microbatch 4: there are 4 microbatches, 0 to 3 (--microbatches)");
}

}  // namespace
}  // namespace fsdp
