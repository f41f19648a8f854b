#include <data/dataset.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <stdexcept>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

TEST(TextFile, reading_text_from_a_path_that_is_neither_a_regular_file_nor_a_folder_throws) {
  const TemporaryFolder folder;
  const std::string fifo = folder.path() + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, std::string("/dev/zero")})
    EXPECT_EQ(error_of<std::invalid_argument>([&] { read_text_files({path}); }),
              "text '" + path + "' is neither a plain file nor a folder");
}

TEST(TextFile, reading_the_text_of_a_folder_leaves_out_a_link_to_nothing_or_to_itself) {
  const TemporaryFolder folder;
  folder.write("a", "text");
  fs::create_symlink("circle", folder.path() + "/circle");
  fs::create_symlink("nowhere", folder.path() + "/link");
  ASSERT_EQ(mkfifo((folder.path() + "/fifo").c_str(), 0600), 0);
  EXPECT_EQ(*read_text_files({folder.path()}), "text");
}

TEST(TextFile, a_file_with_a_nul_far_from_its_start_is_not_text) {
  const TemporaryFolder folder;
  const std::string long_text(3 << 20, 'x');
  folder.write("a", long_text);
  folder.write("b", long_text + '\0' + long_text);
  EXPECT_EQ(*read_text_files({folder.path()}), long_text);
}

}  // namespace
}  // namespace fsdp
