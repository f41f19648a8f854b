#include <gtest/gtest.h>
#include <state/folder_kind.h>

#include <common/temporary_folder.h>

namespace fsdp {
namespace {

TEST(FolderKind, kind_of_folder_recognizes_checkpoints_and_hugging_face_folders_by_their_files) {
  const TemporaryFolder folder;
  folder.write("run/step-000003/checkpoint.json", "{}");
  folder.write("hf/config.json", "{}");
  const std::string other = folder.write("other/notes", "");
  const auto kind = [&](const std::string& name) {
    return kind_of_folder(folder.path() + '/' + name);
  };
  EXPECT_EQ(kind("run"), FolderKind::checkpoint);
  EXPECT_EQ(kind("run/step-000003"), FolderKind::checkpoint);
  EXPECT_EQ(kind("hf"), FolderKind::hugging_face);
  EXPECT_EQ(kind("other"), FolderKind::other);
  EXPECT_EQ(kind("other/notes"), FolderKind::file);
  EXPECT_EQ(kind("nowhere"), FolderKind::missing);
  EXPECT_EQ(kind_of_folder(""), FolderKind::missing);
}

TEST(FolderKind, the_error_about_a_hugging_face_folder_as_a_checkpoint_advises_init) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  EXPECT_EQ(reason_for_no_checkpoint(folder.path()),
            "is a Hugging Face folder, not a checkpoint; train and generate take it as --init hf:" +
                folder.path());
  EXPECT_EQ(reason_for_no_checkpoint(folder.path() + "/nowhere"), "no such folder");
  EXPECT_EQ(reason_for_no_checkpoint(folder.path() + "/config.json"),
            "is a file; give the folder of a checkpoint");
}

}  // namespace
}  // namespace fsdp
