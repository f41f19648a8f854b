#include <gtest/gtest.h>
#include <reproduce/checks.h>

namespace fsdp {
namespace {

TEST(TableCheck, the_check_within_bound_fails_if_prefetch_saves_more_time_than_possible) {
  EXPECT_EQ(passes("within bound", {{"off / on", "1.57"}, {"bound", "1.50"}}), true);
  EXPECT_EQ(passes("within bound", {{"off / on", "1.58"}, {"bound", "1.50"}}), false);
  EXPECT_EQ(passes("within bound", {{"off / on", "busy"}, {"bound", "1.50"}}), std::nullopt);
}

TEST(TableCheck,
     the_check_below_ddp_passes_if_fsdp_peaks_below_ddp_and_saves_more_than_it_needs_or_neither) {
  const auto is_right = [](const char* peak, const char* saves) {
    return passes("below DDP if it saves more",
                  {{"DDP", "10.0"}, {"peak", peak}, {"saves", saves}, {"needs", "2.0"}});
  };
  EXPECT_EQ(is_right("9.9", "2.1"), true);
  EXPECT_EQ(is_right("10.0", "2.0"), true);
  EXPECT_EQ(is_right("9.9", "2.0"), false);
  EXPECT_EQ(is_right("10.0", "2.1"), false);
}

TEST(TableCheck, the_check_solved_passes_only_if_the_run_solves_its_task) {
  EXPECT_EQ(passes("solved", {{"solved at", "40"}}), true);
  EXPECT_EQ(passes("solved", {{"solved at", "never"}}), false);
}

TEST(TableCheck, the_check_of_predictions_fails_unless_live_bytes_and_traffic_are_as_predicted) {
  TrainResult run;
  run.last = {{"live_bytes_mismatches", 0}, {"comm_bytes", 3}, {"comm_bytes_predicted", 3}};
  EXPECT_TRUE(is_as_predicted(run));
  run.last["comm_bytes"] = 4;
  EXPECT_FALSE(is_as_predicted(run));
  run.last["comm_bytes"] = 3;
  run.last["live_bytes_mismatches"] = 1;
  EXPECT_FALSE(is_as_predicted(run));
}

}  // namespace
}  // namespace fsdp
