#include <base/whole_file.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <report/log_file.h>
#include <report/telemetry.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

namespace fsdp {
namespace {

TEST(RunLog, the_run_log_keeps_the_content_of_its_file_and_appends_each_line_at_once) {
  const TemporaryFolder folder;
  const std::string path = folder.write("log", "old\n");
  RunLog log(path);
  log.write({{"step", 0}});
  EXPECT_EQ(content_of(path), "old\n{\"step\":0}\n");
  log.write({{"loss", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_EQ(content_of(path), "old\n{\"step\":0}\n{\"loss\":null}\n");
}

TEST(RunLog, a_run_log_into_a_fifo_without_a_reader_gives_one_warning) {
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
            "--log " + path + ": Broken pipe; training continues without it\n");
}

TEST(RunLog, the_error_of_a_log_that_cannot_be_opened_names_the_file) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/no/log";
  EXPECT_CONTAINS(error_of<std::runtime_error>([&] { RunLog log(path); }), path);
  EXPECT_EQ(reason_not_to_log(path), "No such file or directory");
  EXPECT_EQ(reason_not_to_log(folder.path()), "Is a directory");
  EXPECT_EQ(reason_not_to_log(folder.path() + "/log"), "");
  EXPECT_EQ(reason_not_to_log("/dev/null"), "");
}

TEST(RunLog, a_resumed_run_adds_a_line_to_the_log_if_steps_are_repeated) {
  const TemporaryFolder folder;
  const std::string steps = "{\"step\":0}\n{\"step\":1}\n";
  const std::string path = folder.write("log", steps + "{\"step\":2,\"lo");
  RunLog(path).go_on_after(1);
  EXPECT_EQ(content_of(path), steps + "{\"resumed_after\":1}\n")
      << "an incomplete line must be removed";
  RunLog(path).go_on_after(2);
  EXPECT_EQ(content_of(path), steps + "{\"resumed_after\":1}\n")
      << "no step is repeated, so no line must be added";
}

TEST(LogEnd, end_of_log_finds_the_last_step_of_a_log) {
  const TemporaryFolder folder;
  const auto end = [&](const std::string& text) { return end_of_log(folder.write("log", text)); };
  EXPECT_EQ(end("{\"step\":3}\n{\"step\":4}\n{\"failure\":\"x\"}\n{\"st").last_step, 4);
  EXPECT_EQ(end("{\"step\":3}\n{\"resumed_after\":1}\n").last_step, 3);
  EXPECT_FALSE(end("").last_step);
  EXPECT_TRUE(end("").is_log);
  EXPECT_FALSE(end("a text\n").is_log);
  EXPECT_FALSE(end("{\"id\":1}\n").is_log);
  EXPECT_FALSE(end("no end").is_log);
  std::string large;
  for (int step = 0; step < 40'000; ++step)
    large += "{\"step\":" + std::to_string(step) + ",\"loss\":\"" + std::string(60, 'x') + "\"}\n";
  EXPECT_EQ(end(large).last_step, 39'999);
}

}  // namespace
}  // namespace fsdp
