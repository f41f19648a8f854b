#include <gtest/gtest.h>

#include "parsed.h"

namespace fsdp {
namespace {

// torchrun accepts the beginning of an option's name, so it reads --log as its own --log-dir.
// Therefore --log has a second name, which is the beginning of no option of torchrun.
TEST(LogOption, the_option_log_file_is_another_name_of_the_option_log) {
  EXPECT_EQ(parsed({"--log-file", "/dev/null"}).reports.log, "/dev/null");
  EXPECT_EQ(parsed({"--log", "/dev/null"}).reports.log, "/dev/null");
}

}  // namespace
}  // namespace fsdp
