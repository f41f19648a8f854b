#include <gtest/gtest.h>

#include "parsed.h"

namespace fsdp {
namespace {

// torchrun takes an option of ours for one of its own if it is the beginning of one.
TEST(LogOption, has_a_name_that_torchrun_leaves_alone) {
  EXPECT_EQ(parsed({"--log-file", "/dev/null"}).reports.log, "/dev/null");
  EXPECT_EQ(parsed({"--log", "/dev/null"}).reports.log, "/dev/null");
}

}  // namespace
}  // namespace fsdp
