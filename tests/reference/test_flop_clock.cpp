#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <train/flop_clock.h>

#include <thread>

namespace fsdp {
namespace {

TEST(FlopClock, a_matrix_product_advances_the_flop_clock_by_its_flops) {
  FlopClock clock(1e9);
  at::mm(at::ones({2, 3}), at::ones({3, 4}));
  EXPECT_EQ(clock.now(), 2 * 2 * 3 * 4);
  at::ones({2, 3}).add(1);  // not a matrix product, so the clock must stand still
  EXPECT_EQ(clock.now(), 2 * 2 * 3 * 4);
}

TEST(FlopClock, a_matrix_product_in_another_thread_advances_the_flop_clock) {
  FlopClock clock(1e9);
  std::thread([] { at::mm(at::ones({2, 3}), at::ones({3, 4})); }).join();
  EXPECT_EQ(clock.now(), 2 * 2 * 3 * 4);
}

TEST(FlopClock, sleeping_until_a_time_advances_the_flop_clock_and_never_turns_it_back) {
  FlopClock clock(1e9);
  clock.sleep_until(100);
  clock.sleep_until(50);
  EXPECT_EQ(clock.now(), 100);
  at::mm(at::ones({2, 3}), at::ones({3, 4}));
  EXPECT_EQ(clock.now(), 148);
  EXPECT_EQ(clock.computing(), 48);
}

}  // namespace
}  // namespace fsdp
