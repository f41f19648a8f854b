#include <gtest/gtest.h>

#include <common/expect_text.h>

#include "parsed.h"

namespace fsdp {
namespace {

TEST(StopAfterOption, the_last_step_is_the_one_after_which_the_run_stops) {
  EXPECT_EQ(parsed({"--steps", "9"}).end_step(), 9);
  EXPECT_EQ(parsed({"--steps", "9", "--stop-after", "4"}).end_step(), 4);
  EXPECT_EQ(parsed({"--steps", "9", "--stop-after", "9"}).end_step(), 9);
}

TEST(StopAfterOption, a_step_that_the_run_does_not_have_is_refused) {
  EXPECT_EQ(refused({"--steps", "9", "--stop-after", "10"}),
            "--stop-after 10: the run has only 9 steps (--steps)");
  EXPECT_CONTAINS(refused({"--steps", "9", "--stop-after", "0"}), "--stop-after");
}

}  // namespace
}  // namespace fsdp
