#include <gtest/gtest.h>
#include <state/folder_kind.h>

#include <common/temporary_folder.h>

namespace fsdp {
namespace {

TEST(FolderKind, a_folder_is_known_by_the_files_in_it) {
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

TEST(FolderKind, the_reason_for_no_checkpoint_names_the_option_for_a_hugging_face_folder) {
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
