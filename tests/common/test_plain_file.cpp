#include <base/whole_file.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "temporary_folder.h"

namespace fsdp {
namespace {

TEST(PlainFile, holds_something_returns_true_only_for_a_regular_file_that_is_not_empty) {
  const TemporaryFolder folder;
  EXPECT_TRUE(holds_something(folder.write("file", "x")));
  for (const std::string& path : {folder.write("empty", ""), folder.path() + "/none", folder.path(),
                                  std::string("/dev/stdout"), std::string("/dev/null")})
    EXPECT_FALSE(holds_something(path)) << path;
}

}  // namespace
}  // namespace fsdp
