#include <command_line/run_program.h>
#include <plan/settings.h>

#include <gtest/gtest.h>

#include <filesystem>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

namespace fsdp {
namespace {

TEST(PlanOption, plan_refuses_wrong_options_with_the_reason) {
  const auto error = [](const std::vector<std::string>& options) {
    return error_of<UsageError>([&] { parse_plan_options(options); });
  };
  EXPECT_EQ(error({"--search"}), "--search: needs --memory or --machine");
  EXPECT_EQ(error({"--search", "--memory", "much"}),
            "--memory much: must be a number such as 80GB");
  EXPECT_EQ(error({"--machine", "8xA100-80GB", "--backend", "shm"}),
            "--machine: its ranks are on GPUs; leave out --backend shm");
  EXPECT_EQ(error({"--world", "0..8"}), "--world must be at least 1, not 0");
  EXPECT_EQ(error({"--rows", "2", "--batch", "4"}), "--rows and --batch: give only one of them");
}

TEST(PlanOption, the_svg_of_a_plan_cannot_replace_a_file_that_another_option_names) {
  const TemporaryFolder folder;
  const std::string file = folder.write("run.toml", "model = \"gpt2-tiny\"\n");
  const std::string link = folder.path() + "/link.svg";
  std::filesystem::create_symlink("run.toml", link);
  for (const std::vector<std::string>& config :
       {std::vector<std::string>{"--config", file}, {"--config=" + file}}) {
    std::vector<std::string> options{"--svg", link};
    options.insert(options.end(), config.begin(), config.end());
    EXPECT_EQ(error_of<UsageError>([&] { parse_plan_options(options); }),
              "--svg " + link + ": would replace the file " + file +
                  ", which is read; give another file");
  }
}

// `./fsdp plan` plans the run of a run.toml; options of the command line replace those of the file.
TEST(PlanOption, options_of_a_config_file_replace_the_defaults_of_a_plan) {
  const TemporaryFolder folder;
  folder.write("run/step-000009/checkpoint.json", "{}");
  const std::string tokens = folder.write("t.bin", std::string(400, '\1'));
  const std::string file = folder.write(
      "run.toml",
      "mode = \"ddp\"\nworld = 4\nmodel = \"gpt2-tiny\"\ndata = \"tokens\"\ntokens = \"" + tokens +
          "\"\nvocabulary = 25000\nseq = 8\nbatch = 8\nparts = 8\nsteps = 9\n" +
          "checkpoint-dir = \"" + folder.path() + "/run\"\nsave-every = 3\nresume = \"auto\"\n" +
          "log = \"/no/log\"\njson = \"/no/json\"\nwarmup = 20\n");
  const auto plans = [&](std::vector<std::string> options) {
    options.insert(options.end(), {"--config", file});
    return parse_plan_options(options).configs;
  };
  testing::internal::CaptureStderr();
  const TrainConfig own = plans({}).front();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(own.ranks.mode, Mode::ddp);
  EXPECT_EQ(own.ranks.world, 4);
  EXPECT_EQ(own.model.name, "gpt2-tiny");
  EXPECT_EQ(own.data.kind, DataKind::tokens);
  EXPECT_EQ(own.training.batch, 8);
  EXPECT_EQ(own.training.microbatches, 8);
  EXPECT_EQ(own.training.steps, 9);
  EXPECT_EQ(own.checkpoint.first_step, 0);
  EXPECT_EQ(own.checkpoint.dir + own.reports.log + own.reports.json + own.checkpoint.resume, "");
  const auto more = plans({"--world", "4..16", "--rows", "2", "--mode", "fsdp"});
  ASSERT_EQ(more.size(), 3U);
  EXPECT_EQ(more[0].training.microbatches, 8);
  EXPECT_EQ(more[2].training.microbatches, 16);
  EXPECT_EQ(more[2].training.batch, 32);
  EXPECT_EQ(more[2].ranks.mode, Mode::fsdp);
  EXPECT_EQ(parse_plan_options({"--model", "small"}).configs.front().data.kind, DataKind::pattern);
  const std::vector<std::string> of_tokens{"--tokens", tokens,      "--vocabulary", "25000",
                                           "--model",  "gpt2-tiny", "--seq",        "8"};
  EXPECT_EQ(parse_plan_options(of_tokens).configs.front().data.kind, DataKind::tokens);
}

TEST(PlanOption, the_error_of_an_unknown_plan_option_names_the_nearest_option_of_plan_or_train) {
  const auto error = [](const std::vector<std::string>& options) {
    return error_of<UsageError>([&] { parse_plan_options(options); });
  };
  EXPECT_EQ(error({"--flop", "1T"}), "there is no option --flop; the nearest one is --flops");
  EXPECT_EQ(error({"--modle", "small"}), "there is no option --modle; the nearest one is --model");
  EXPECT_EQ(error({"--svg", "/no/such.svg"}), "--svg /no/such.svg: No such file or directory");
}

// `./fsdp plan` should answer for rows of a realistic length. With 127 tokens, which is the default
// of train, activations would take a thirtieth of the memory.
TEST(PlanOption, plan_uses_the_models_context_as_seq_unless_an_option_or_a_file_sets_it) {
  const auto seq = [](const std::vector<std::string>& options) {
    return parse_plan_options(options).configs.front().training.seq;
  };
  EXPECT_EQ(seq({"--model", "llama-13b"}), 4096);
  EXPECT_EQ(seq({"--model", "llama-13b", "--seq", "9"}), 9);
  EXPECT_EQ(seq({"--model", "llama-13b", "--recipe", "published"}), 127);
  EXPECT_EQ(seq({"--recipe", "modular"}), 3);
  const TemporaryFolder folder;
  EXPECT_EQ(seq({"--config", folder.write("run.toml", "model = \"llama-13b\"\n")}), 127);
}

}  // namespace
}  // namespace fsdp
