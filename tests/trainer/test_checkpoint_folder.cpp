#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>

#include <filesystem>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

TEST(CheckpointFolder, remove_old_checkpoints_keeps_the_latest_ones_and_removes_unfinished_ones) {
  const TemporaryFolder folder;
  for (const std::string name : {"step-000001", "step-000002", "step-000010", "step-1000000",
                                 "step-000011.part", "step-7", "notes"})
    folder.write(name + "/file", "");
  EXPECT_EQ(latest_step(folder.path()), 1000000);
  remove_old_checkpoints(folder.path(), 2);
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    left.insert(entry.path().filename());
  EXPECT_EQ(left, (std::set<std::string>{"step-000010", "step-1000000", "step-7", "notes"}));
}

TEST(CheckpointFolder,
     remove_old_checkpoints_also_keeps_the_checkpoint_of_the_step_in_the_argument_held) {
  const TemporaryFolder folder;
  for (const std::string name : {"step-000001", "step-000002", "step-000003", "step-000004"})
    folder.write(name + "/file", "");
  remove_old_checkpoints(folder.path(), 1, /*held=*/2);
  EXPECT_EQ(step_folders(folder.path()).size(), 2U);
  EXPECT_TRUE(step_folders(folder.path()).contains(2));
  remove_old_checkpoints(folder.path(), 1, /*held=*/4);
  EXPECT_EQ(step_folders(folder.path()).size(), 1U);
}

TEST(CheckpointFolder, checkpoint_in_which_lies_names_the_checkpoint_that_has_the_path) {
  const TemporaryFolder folder;
  const std::string one = folder.path() + "/step-000001", two = folder.path() + "/step-000002";
  const std::string file = folder.write("step-000001/model.safetensors", "");
  folder.write("step-000002/model.safetensors", "");
  fs::create_symlink("step-000001/model.safetensors", folder.path() + "/link");
  for (const std::string& checkpoint : {two, two + '/', one}) {
    EXPECT_EQ(checkpoint_in_which_lies(file, checkpoint), one);
    EXPECT_EQ(checkpoint_in_which_lies(one + "/new", checkpoint), one);
    EXPECT_EQ(checkpoint_in_which_lies(folder.path() + "/link", checkpoint), one);
    EXPECT_EQ(checkpoint_in_which_lies(folder.path() + "/log", checkpoint), "");
  }
}

TEST(CheckpointFolder, find_checkpoint_throws_if_the_folder_has_no_checkpoint) {
  const TemporaryFolder folder;
  folder.write("step-000001.part/checkpoint.json", "{}");
  EXPECT_EQ(latest_step(folder.path()), std::nullopt);
  const auto error = [](const std::string& path) {
    return error_of<std::runtime_error>([&] { find_checkpoint(path); });
  };
  EXPECT_EQ(error(folder.path()),
            folder.path() + ": is not a checkpoint, and has none (step-000001, ...)");
  EXPECT_EQ(error(folder.path() + "/nowhere"), folder.path() + "/nowhere: no such folder");
}

}  // namespace
}  // namespace fsdp
