#include <gtest/gtest.h>

#include <common/temporary_folder.h>

#include "parsed.h"

namespace fsdp {
namespace {

TEST(OptionFile, reading_the_options_that_a_run_saved_gives_the_settings_of_this_run) {
  const std::vector<std::string> options{
      "--mode",  "fsdp", "--world",    "2",    "--steps",  "7",
      "--limit", "all",  "--prefetch", "on",   "--link",   "9us,2GB/s",
      "--lr",    "0.25", "--no-decay", "a|b$", "--poison", "on"};
  const TrainConfig config = parsed(options);
  const TemporaryFolder folder;
  const auto file = folder.write("run.toml", config.reports.saved_options);
  const TrainConfig same = parsed({"--config", file});
  EXPECT_EQ(same.reports.saved_options, config.reports.saved_options);
  EXPECT_EQ(same.sharding.limit, kAllUnits);
  EXPECT_EQ(same.optimizer.lr, 0.25);
  EXPECT_EQ(same.optimizer.no_decay, "a|b$");
  EXPECT_TRUE(same.debug.poison);
  EXPECT_EQ(parsed({"--config", file, "--steps", "9"}).training.steps, 9)
      << "the command line must override the file";
}

TEST(OptionFile, a_config_file_with_former_names_of_options_is_still_read) {
  const TemporaryFolder folder;
  const auto file = folder.write("run.toml",
                                 "world = 2\nparts = 8\naccumulate = \"last\"\n"
                                 "offload = \"optimizer\"\npinned = 4096\noffload-dir = \"" +
                                     folder.path() + "\"\n");
  const TrainConfig config = parsed({"--mode", "fsdp", "--config", file});
  EXPECT_EQ(config.training.microbatches, 8);
  EXPECT_EQ(config.training.reduce_gradients, ReduceGradients::last);
  EXPECT_EQ(config.memory.offload_resident, 4096);
}

}  // namespace
}  // namespace fsdp
