#include <gtest/gtest.h>

#include <common/temporary_folder.h>
#include <trainer/hugging_face_files.h>

#include <filesystem>

#include "parsed.h"

// The options that name data, files and folders.
namespace fsdp {
namespace {

TEST(OutputOptions, a_file_that_can_not_be_written_is_refused_with_the_reason) {
  const TemporaryFolder folder;
  const std::string missing = folder.path() + "/no/such/file.txt";
  const std::string taken = folder.path() + "/folder.txt";
  std::filesystem::create_directory(taken);
  for (const std::string option : {"--log", "--json", "--trace", "--profile"}) {
    EXPECT_EQ(refused({option, missing}), option + ' ' + missing + ": No such file or directory");
    EXPECT_EQ(refused({option, taken}), option + ' ' + taken + ": Is a directory");
    const std::string path = folder.path() + "/file.txt";
    EXPECT_EQ(refused({option, path}), "accepted");
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST(OutputOptions, a_file_may_be_one_of_the_system) {
  EXPECT_EQ(parsed({"--log", "/dev/null", "--json", "/dev/null"}).json, "/dev/null");
  EXPECT_EQ(refused({"--json", "-"}), "--json -: names no file; give /dev/stdout");
  EXPECT_EQ(refused({"--log", "-"}), "--log -: names no file; give /dev/stdout");
}

TEST(OutputOptions, two_of_them_are_two_files) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file.txt";
  const std::string link = folder.path() + "/link.txt";
  std::filesystem::create_symlink("file.txt", link);
  const auto name_one = [&](const std::string& a, const std::string& b) {
    return a + " and " + b + " name one file, " + path + ": one would replace the other";
  };
  EXPECT_EQ(refused({"--json", path, "--trace", path}), name_one("--json", "--trace"));
  EXPECT_EQ(refused({"--json", path, "--trace", link}), name_one("--json", "--trace"));
  EXPECT_EQ(refused({"--json", path, "--log", path}), name_one("--json", "--log"));
  EXPECT_EQ(refused({"--log", path, "--checkpoint-dir", path}),
            name_one("--log", "--checkpoint-dir"));
  EXPECT_EQ(refused({"--json", path, "--trace", folder.path() + "/other.txt"}), "accepted");
  folder.write("file.txt", "a text that is worth more than a log");
  EXPECT_EQ(refused({"--json", path, "--text", path}), name_one("--json", "--text"));
}

TEST(OutputOptions, a_log_gets_the_steps_of_one_run) {
  const TemporaryFolder folder;
  const std::string log = folder.write("log", "{\"step\":0}\n{\"step\":199}\n");
  EXPECT_EQ(refused({"--log", log}),
            "--log " + log +
                ": has a run up to step 200 already; give another file, or "
                "go on with that run (--resume)");
  EXPECT_EQ(refused({"--log", log, "--resume", "auto", "--checkpoint-dir", folder.path() + "/run"}),
            "accepted");
  const std::string text = folder.write("text", "a text that is worth more\n");
  EXPECT_EQ(refused({"--log", text}), "--log " + text + ": is no log of a run; give another file");
  EXPECT_EQ(refused({"--log", folder.write("empty", "")}), "accepted");
}

TEST(OutputOptions, a_file_of_options_replaces_no_results) {
  const TemporaryFolder folder;
  for (const std::string name : {"json", "trace", "profile"}) {
    const std::string path = folder.write(name + ".txt", "results");
    const std::string file = folder.write("o.toml", name + " = \"" + path + "\"\n");
    const std::string option = "--" + name, other = folder.path() + "/other.txt";
    EXPECT_EQ(refused({"--config", file}),
              option + ' ' + path + ": has the results of a run, which would be replaced; give " +
                  option + " another file (line 1 of " + file + ")");
    EXPECT_EQ(refused({"--config", file, option, other}), "accepted");
    EXPECT_EQ(refused({"--config", file, option, path}), "accepted") << "it was said by name";
  }
}

TEST(OutputOptions, the_hashes_and_the_recording_of_a_run_are_not_written_over) {
  const TemporaryFolder folder;
  folder.write("hashes/rank.0", "{}");
  const std::string hashes = folder.path() + "/hashes", file = hashes + "/rank.0";
  EXPECT_EQ(refused({"--hashes", hashes}),
            "--hashes " + hashes + ": has the hashes of a run already; give another folder");
  EXPECT_EQ(refused({"--hashes", file}), "--hashes " + file + ": is no folder");
  EXPECT_EQ(refused({"--hashes", file + "/x"}), "--hashes " + file + "/x: Not a directory");
  EXPECT_EQ(refused({"--record", hashes}),
            "--record " + hashes + ": is there already; name a new folder");
  EXPECT_EQ(refused({"--record", file + "/x"}), "--record " + file + "/x: Not a directory");
  unsetenv("FSDP_RECORD");
}

TEST(OffloadOption, needs_a_folder_that_can_be_written) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "x");
  EXPECT_EQ(refusal({"--offload", "optimizer", "--offload-dir", file}),
            "--offload-dir " + file + ": Not a directory");
}

TEST(OffloadOption, names_a_folder_and_the_bytes_that_stay_in_memory) {
  const std::string folder = "/";
  const TrainConfig config =
      parse({"--offload", "optimizer", "--offload-dir", folder, "--pinned", "3000000000"});
  EXPECT_EQ(config.offload_dir, folder);
  EXPECT_EQ(config.pinned, 3'000'000'000);
  EXPECT_EQ(parse({"--offload", "none"}).offload_dir, "");
}

TEST(OffloadOption, refuses_what_cannot_be_meant) {
  EXPECT_EQ(refusal({"--offload", "optimizer"}), "--offload optimizer: needs --offload-dir");
  EXPECT_EQ(refusal({"--offload-dir", "/"}), "--offload-dir: needs --offload optimizer");
  EXPECT_EQ(refusal({"--pinned", "1", "--offload", "none"}), "--pinned: needs --offload optimizer");
  EXPECT_EQ(refusal({"--offload", "optimizer", "--offload-dir", "/missing"}),
            "--offload-dir /missing: no such folder");
  EXPECT_EQ(refusal({"--offload", "optimizer", "--offload-dir", "/", "--optimizer", "sgd"}),
            "--offload optimizer: sgd has no state; give --optimizer adamw");
}

TEST(OffloadOption, refuses_a_folder_that_lies_in_memory) {
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "this machine has no /dev/shm";
  EXPECT_EQ(refusal({"--offload", "optimizer", "--offload-dir", "/dev/shm"}),
            "--offload-dir /dev/shm: lies in memory; give one on a disk");
}

class InitOption : public testing::Test {
 protected:
  InitOption() { files_.write(folder_.path()); }
  std::string option() const { return "hf:" + folder_.path(); }

  TemporaryFolder folder_;
  HuggingFaceFiles files_ = files_of(*tiny_gpt2());
};

TEST_F(InitOption, names_a_folder) {
  EXPECT_EQ(parse({"--model", "gpt2-tiny", "--init", option()}).init, folder_.path());
  EXPECT_EQ(parse({"--model", "gpt2-tiny"}).init, "");
  EXPECT_EQ(refusal({"--init", folder_.path()}), "--init " + folder_.path() + ": takes hf:FOLDER");
  EXPECT_EQ(refusal({"--init", "hf:"}), "--init hf:: takes hf:FOLDER");
}

TEST_F(InitOption, of_a_model_of_another_size_is_refused) {
  EXPECT_EQ(refusal({"--model", "gpt2-36m", "--init", option()}),
            "--init " + option() + ": config.json has vocab_size 61, and gpt2-36m has 20000");
  files_.config["n_layer"] = 2;
  files_.write(folder_.path());
  EXPECT_EQ(refusal({"--model", "gpt2-tiny", "--init", option()}),
            "--init " + option() + ": config.json has n_layer 2, and gpt2-tiny has 3");
  EXPECT_EQ(refusal({"--model", "small", "--init", option()}),
            "--init " + option() + ": config.json has model_type gpt2, and small is a llama");
}

TEST_F(InitOption, says_which_model_it_is_unless_that_is_given) {
  EXPECT_EQ(parse({"--init", option()}).model, "gpt2-tiny");
  EXPECT_EQ(
      refused({"--init", option(), "--seq", "19"}),
      "--init " + option() + ": config.json has vocab_size 61, and gpt2-tiny on text has 256");
  files_.config["vocab_size"] = 256;
  files_.at("transformer.wte.weight") = at::zeros({256, 35});
  files_.write(folder_.path());
  const std::string model = "gpt2:vocabulary=256,context=19,d_model=35,layers=3,heads=5,d_ff=121";
  EXPECT_EQ(parse({"--init", option(), "--seq", "19"}).model, model);
}

TEST_F(InitOption, with_a_wrong_file_is_refused_before_any_rank_starts) {
  files_.remove("transformer.ln_f.bias");
  files_.write(folder_.path());
  EXPECT_EQ(refusal({"--model", "gpt2-tiny", "--init", option()}),
            "--init " + option() + ": " + folder_.path() +
                "/model.safetensors: has no tensor transformer.ln_f.bias");
}

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
