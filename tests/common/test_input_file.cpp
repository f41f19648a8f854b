#include <base/whole_file.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "temporary_folder.h"

namespace fsdp {
namespace {

TEST(InputFile, an_unreadable_input_file_is_reported_with_the_reason) {
  const TemporaryFolder folder;
  EXPECT_EQ(reason_not_to_read(folder.write("file", "x")), "");
  EXPECT_EQ(reason_not_to_read("/dev/null"), "");
  EXPECT_EQ(reason_not_to_read(folder.path() + "/none"), "No such file or directory");
  EXPECT_EQ(reason_not_to_read(folder.path() + "/file/none"), "Not a directory");
  EXPECT_EQ(reason_not_to_read(folder.path()), "Is a directory");
}

}  // namespace
}  // namespace fsdp
