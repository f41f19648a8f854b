#include <gtest/gtest.h>

#include <common/expect_text.h>

#include "parsed.h"

namespace fsdp {
namespace {

TEST(StopAfterOption, the_option_stop_after_sets_the_last_step_of_a_run) {
  EXPECT_EQ(parsed({"--steps", "9"}).end_step(), 9);
  EXPECT_EQ(parsed({"--steps", "9", "--stop-after", "4"}).end_step(), 4);
  EXPECT_EQ(parsed({"--steps", "9", "--stop-after", "9"}).end_step(), 9);
}

TEST(StopAfterOption, the_option_stop_after_is_refused_for_a_step_that_the_run_does_not_have) {
  EXPECT_EQ(refused({"--steps", "9", "--stop-after", "10"}),
            "--stop-after 10: the run has only 9 steps (--steps)");
  EXPECT_CONTAINS(refused({"--steps", "9", "--stop-after", "0"}), "--stop-after");
}

}  // namespace
}  // namespace fsdp
