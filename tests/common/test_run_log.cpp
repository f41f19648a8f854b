#include <fcntl.h>
#include <gtest/gtest.h>
#include <report/progress.h>
#include <report/run_log.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <limits>

#include "expect_text.h"
#include "temporary_folder.h"

namespace fsdp {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(RunLog, writes_a_line_at_once_after_what_the_file_holds) {
  const TemporaryFolder folder;
  const std::string path = folder.write("log", "old\n");
  RunLog log(path);
  log.write({{"step", 0}});
  EXPECT_EQ(content_of(path), "old\n{\"step\":0}\n");
  log.write({{"loss", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_EQ(content_of(path), "old\n{\"step\":0}\n{\"loss\":null}\n");
}

TEST(RunLog, writes_to_a_fifo_and_survives_a_reader_that_goes) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  RunLog log(path);
  log.write({{"step", 0}});
  char text[64];
  const ssize_t count = read(reader, text, sizeof text);
  EXPECT_EQ(std::string(text, static_cast<size_t>(count)), "{\"step\":0}\n");
  close(reader);
  testing::internal::CaptureStderr();
  log.write({{"step", 1}});
  log.write({{"step", 2}});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "--log " + path + ": Broken pipe; training goes on without it\n");
}

TEST(RunLog, a_file_that_can_not_be_opened_is_named) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/no/log";
  EXPECT_CONTAINS(error_of<std::runtime_error>([&] { RunLog log(path); }), path);
  EXPECT_FALSE(can_be_logged_to(path));
  EXPECT_FALSE(can_be_logged_to(folder.path()));
  EXPECT_TRUE(can_be_logged_to(folder.path() + "/log"));
  EXPECT_TRUE(can_be_logged_to("/dev/null"));
}

TEST(Progress, is_a_line_without_the_time_left_in_a_pipe) {
  Progress progress(10, /*terminal=*/false);
  progress.after({1, 0, 0.5, 100, 2'000'000});
  EXPECT_EQ(progress.after({5, 100, 0.5, 100, 2'000'000}),
            "step 5/10  loss 0.5000000000  100 tokens/s  2.0 MB live\n");
}

TEST(Progress, shows_the_time_left_on_a_terminal_after_two_seconds) {
  Progress progress(10, /*terminal=*/true);
  const auto shown = [&](int64_t done, double seconds) {
    return progress.after({done, seconds, 0.5, 100, 2'000'000});
  };
  EXPECT_EQ(shown(1, 50),
            "\r\033[K[==                      ] 1/10  loss 0.500000  100 tokens/s  2.0 MB live ");
  EXPECT_EQ(shown(2, 51.9).find("left"), std::string::npos);
  EXPECT_CONTAINS(shown(3, 54), "live  14 s left ");  // 2 s a step, 7 to go
  EXPECT_CONTAINS(shown(9, 290), "live  30 s left ");
  const std::string last = shown(10, 400);
  EXPECT_EQ(last.find("left"), std::string::npos);
  EXPECT_EQ(last.back(), '\n');
}

TEST(Progress, writes_times_as_people_do) {
  EXPECT_EQ(time_left(0.2), "0 s left");
  EXPECT_EQ(time_left(59.4), "59 s left");
  EXPECT_EQ(time_left(59.6), "1 min left");
  EXPECT_EQ(time_left(100), "2 min left");
  EXPECT_EQ(time_left(3569), "59 min left");
  EXPECT_EQ(time_left(3900), "1 h 5 min left");
}

}  // namespace
}  // namespace fsdp
