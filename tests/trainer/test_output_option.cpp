#include <base/whole_file.h>
#include <gtest/gtest.h>

#include <common/expect_text.h>
#include <common/temporary_folder.h>
#include <trainer/hugging_face_files.h>

#include <filesystem>

#include "parsed.h"

namespace fsdp {
namespace {

TEST(OutputOption, an_unwritable_output_file_is_refused_with_the_reason) {
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

TEST(OutputOption, an_output_option_accepts_a_device_file_and_refuses_a_dash) {
  EXPECT_EQ(parsed({"--log", "/dev/null", "--json", "/dev/null"}).reports.json, "/dev/null");
  EXPECT_EQ(refused({"--json", "-"}), "--json -: - is not a file; give /dev/stdout");
  EXPECT_EQ(refused({"--log", "-"}), "--log -: - is not a file; give /dev/stdout");
}

TEST(OutputOption, two_output_options_that_name_the_same_file_are_refused) {
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

TEST(OutputOption, an_output_file_in_the_folder_of_init_or_in_a_folder_of_text_is_refused) {
  const TemporaryFolder folder;
  const std::string init = folder.path() + "/hf";
  files_of(*tiny_gpt2()).write(init);
  const std::string link = folder.path() + "/link.txt";
  std::filesystem::create_symlink("hf/model.safetensors", link);
  const std::string model_file = content_of(init + "/model.safetensors");
  for (const std::string option : {"--json", "--profile", "--log", "--receipt"}) {
    for (const std::string& path : {init + "/new.txt", init + "/config.json", link})
      EXPECT_EQ(
          refusal({"--init", "hf:" + init, option, path}),
          option + ' ' + path + ": lies in " + init + ", the folder of --init; give another file");
  }
  EXPECT_EQ(content_of(link), model_file);
  EXPECT_EQ(refusal({"--init", "hf:" + init, "--json", folder.path() + "/new.json"}), "accepted");
  const std::string text = folder.write("texts/a.txt", std::string(1000, 'a'));
  const std::string texts = folder.path() + "/texts";
  EXPECT_EQ(refused({"--text", texts, "--json", text}),
            "--json " + text + ": is a file of --text " + texts + "; give another file");
  EXPECT_EQ(refused({"--text", texts, "--json", texts + "/new.json"}), "accepted");
}

TEST(OutputOption, check_not_read_refuses_a_file_that_a_word_of_other_options_names) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a", ""), other = folder.write("b", "");
  const std::string init = folder.path() + "/hf", inside = folder.write("hf/config.json", "{}");
  EXPECT_NO_THROW(check_not_read("--save", other, {"--text", file, "--init", "hf:" + init}));
  for (const std::string& word : {file, "--text=" + file, folder.path() + "/hf/../a"})
    EXPECT_CONTAINS(error_of<UsageError>([&] { check_not_read("--save", file, {word}); }),
                    "--save " + file + ": would replace the file /");
  EXPECT_EQ(error_of<UsageError>([&] {
              check_not_read("--save", inside, {"--init", "hf:" + init});
            }),
            "--save " + inside + ": would replace a file of the model hf:" + init +
                ", which is read; give another file");
}

TEST(OutputOption, a_log_file_that_has_another_run_or_is_not_a_log_is_refused) {
  const TemporaryFolder folder;
  const std::string log = folder.write("log", "{\"step\":0}\n{\"step\":199}\n");
  EXPECT_EQ(refused({"--log", log}),
            "--log " + log +
                ": has a run up to step 200 already; give another file, or "
                "continue that run (--resume)");
  EXPECT_EQ(refused({"--log", log, "--resume", "auto", "--checkpoint-dir", folder.path() + "/run"}),
            "accepted");
  const std::string text = folder.write("text", "a text that is worth more\n");
  EXPECT_EQ(refused({"--log", text}),
            "--log " + text + ": is not the log of a run; give another file");
  EXPECT_EQ(refused({"--log", folder.write("empty", "")}), "accepted");
}

TEST(OutputOption, an_output_option_in_a_config_file_cannot_replace_existing_results) {
  const TemporaryFolder folder;
  for (const std::string name : {"json", "trace", "profile"}) {
    const std::string path = folder.write(name + ".txt", "results");
    const std::string file = folder.write("o.toml", name + " = \"" + path + "\"\n");
    const std::string option = "--" + name, other = folder.path() + "/other.txt";
    EXPECT_EQ(refused({"--config", file}),
              option + ' ' + path + ": has the results of a run, which would be replaced; give " +
                  option + " another file (line 1 of " + file + ")");
    EXPECT_EQ(refused({"--config", file, option, other}), "accepted");
    EXPECT_EQ(refused({"--config", file, option, path}), "accepted")
        << "an option of the command line must be accepted";
  }
}

TEST(OutputOption, existing_hashes_and_recordings_are_not_overwritten) {
  const TemporaryFolder folder;
  folder.write("hashes/rank.0", "{}");
  const std::string hashes = folder.path() + "/hashes", file = hashes + "/rank.0";
  EXPECT_EQ(refused({"--hashes", hashes}),
            "--hashes " + hashes + ": has the hashes of a run already; give another folder");
  EXPECT_EQ(refused({"--hashes", file}), "--hashes " + file + ": is not a folder");
  EXPECT_EQ(refused({"--hashes", file + "/x"}), "--hashes " + file + "/x: Not a directory");
  EXPECT_EQ(refused({"--record", hashes}),
            "--record " + hashes + ": is there already; name a new folder");
  EXPECT_EQ(refused({"--record", file + "/x"}), "--record " + file + "/x: Not a directory");
  unsetenv("FSDP_RECORD");
}

}  // namespace
}  // namespace fsdp
