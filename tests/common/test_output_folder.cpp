#include <base/whole_file.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "files_in.h"
#include "temporary_folder.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

TEST(OutputFolder, an_unwritable_output_folder_is_reported_before_anything_is_written) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "x"), link = folder.path() + "/link";
  fs::create_symlink("nowhere", link);
  for (const auto& [path, reason] : std::vector<std::pair<std::string, std::string>>{
           {folder.path(), ""},
           {folder.path() + "/new/one/", ""},
           {file, "Not a directory"},
           {file + "/run", "Not a directory"},
           {link + "/run", "No such file or directory"},
           {"/proc/run", "No such file or directory"},
           {folder.path() + '/' + std::string(300, 'x') + "/run", "File name too long"}})
    EXPECT_EQ(reason_not_to_fill(path), reason) << path;
  EXPECT_EQ(files_in(folder.path()), 2) << "reason_not_to_fill() left something behind";
}

}  // namespace
}  // namespace fsdp
