#include <gtest/gtest.h>
#include <report/telemetry.h>

#include <common/expect_text.h>

namespace fsdp {
namespace {

TEST(Progress, the_progress_on_a_terminal_shows_the_time_left_after_two_seconds) {
  Progress progress({10});
  const auto shown = [&](int64_t done, double seconds) {
    return progress.after({done, seconds, 0.5, 100, 2'000'000}, 100);
  };
  EXPECT_EQ(shown(1, 50),
            "\r\033[K[==                      ] 1/10  loss 0.500000  100 tokens/s  2.0 MB live");
  EXPECT_EQ(shown(2, 51.9).find("left"), std::string::npos);
  // The run has 7 steps left, each of about 2 s.
  EXPECT_CONTAINS(shown(3, 54), "live  14 s left");
  EXPECT_CONTAINS(shown(5, 250), "live  4 min left");
  EXPECT_CONTAINS(shown(6, 18050), "live  4 h 0 min left");
  const std::string last = shown(10, 400);
  EXPECT_EQ(last.find("left"), std::string::npos);
  EXPECT_EQ(last.back(), '\n');
}

TEST(Progress, the_progress_in_a_pipe_is_lines_without_the_time_left) {
  Progress progress({10});
  progress.after({1, 0, 0.5, 100, 2'000'000}, 0);
  EXPECT_EQ(progress.after({5, 100, 0.5, 100, 2'000'000}, 0),
            "step 5/10  loss 0.5000000000  100 tokens/s  2.0 MB live\n");
}

TEST(Progress, the_progress_in_a_pipe_has_the_first_the_last_and_each_nth_step) {
  Progress progress({.all = 10, .every = 4});
  std::string printed;
  for (int64_t step = 1; step <= 10; ++step) {
    const std::string line = progress.after({step, 0, 0.5, 100, 0}, 0);
    printed += line.substr(0, line.find(' ', 5));
    EXPECT_CONTAINS(progress.after({step, 0, 0.5, 100, 0}, 80), std::to_string(step) + "/10");
  }
  EXPECT_EQ(printed, "step 1/10step 4/10step 8/10step 10/10");
}

TEST(Progress, the_progress_fits_into_one_line_of_any_terminal) {
  Progress progress({10'000});
  const Progress::Step step{9'999, 0, 12.345678, 1234567, 123'456'789'000};
  const auto shown = [&](int columns) {
    const std::string text = progress.after(step, columns);
    const std::string begin = "\r\033[K";
    EXPECT_EQ(text.substr(0, begin.size()), begin);
    return text.substr(begin.size());
  };
  const std::string words = "9999/10000  loss 12.345678  1234567 tokens/s  123456.8 MB live";
  const std::string bar = "[======================= ] ";
  EXPECT_EQ(shown(100), bar + words);
  EXPECT_EQ(shown(80), words);
  EXPECT_EQ(shown(40), words.substr(0, 39));
  for (int columns = 1; columns < 100; ++columns)
    EXPECT_LT(shown(columns).size(), static_cast<size_t>(columns));
}

}  // namespace
}  // namespace fsdp
