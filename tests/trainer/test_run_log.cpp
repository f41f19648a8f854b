#include <base/whole_file.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <report/log_file.h>
#include <report/telemetry.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include <common/expect_text.h>
#include <common/set_variables.h>
#include <common/temporary_folder.h>

namespace fsdp {
namespace {

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
  EXPECT_EQ(reason_not_to_log(path), "No such file or directory");
  EXPECT_EQ(reason_not_to_log(folder.path()), "Is a directory");
  EXPECT_EQ(reason_not_to_log(folder.path() + "/log"), "");
  EXPECT_EQ(reason_not_to_log("/dev/null"), "");
}

TEST(RunLog, marks_where_steps_come_again_after_a_run_that_was_stopped) {
  const TemporaryFolder folder;
  const std::string steps = "{\"step\":0}\n{\"step\":1}\n";
  const std::string path = folder.write("log", steps + "{\"step\":2,\"lo");
  RunLog(path).go_on_after(1);
  EXPECT_EQ(content_of(path), steps + "{\"resumed_after\":1}\n") << "half a line is left out";
  RunLog(path).go_on_after(2);
  EXPECT_EQ(content_of(path), steps + "{\"resumed_after\":1}\n") << "no step comes again";
}

TEST(LogEnd, is_the_last_step_of_a_log) {
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

// A line of 20,000 steps has about 90 bytes.
TEST(Telemetry, of_many_steps_keeps_few_bytes_in_memory) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/json";
  for (const std::string& json : {std::string(), path}) {
    Telemetry telemetry(20'000, json, /*lines_only=*/true);
    testing::internal::CaptureStdout();
    int64_t most = 0;
    for (int64_t step = 0; step < 20'000; ++step) {
      telemetry.step(step, 0.5, 1000, 1.0, 1'000'000);
      most = std::max(most, telemetry.bytes_in_memory());
    }
    telemetry.finish({{"final", true}}, {});
    testing::internal::GetCapturedStdout();
    EXPECT_LE(most, json.empty() ? 0 : 70'000);
  }
  std::ifstream file(path);
  int64_t lines = 0;
  for (std::string line, begin = "{\"step\":"; std::getline(file, line); ++lines)
    EXPECT_TRUE(lines == 20'000 || line.starts_with(begin + std::to_string(lines) + ','));
  EXPECT_EQ(lines, 20'001);
}

// Open MPI gives rank 0 a terminal, behind which may be a file.
TEST(Telemetry, prints_lines_and_no_bar_on_the_terminal_of_a_launcher) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
  const int end = open(ptsname(terminal), O_RDWR | O_NOCTTY), before = dup(STDOUT_FILENO);
  const auto printed = [&](bool lines_only) {
    std::fflush(stdout);
    dup2(end, STDOUT_FILENO);
    Telemetry(4, "", lines_only).step(0, 0.5, 1000, std::nullopt, 0);
    dup2(before, STDOUT_FILENO);
    char text[400];
    const ssize_t count = read(terminal, text, sizeof text);
    return std::string(text, static_cast<size_t>(count));
  };
  EXPECT_CONTAINS(printed(false), "\033[K");
  const std::string line = printed(true);
  EXPECT_EQ(line.find("\033[K"), std::string::npos) << line;
  EXPECT_CONTAINS(line, "step 1/4  loss 0.5000000000");
  for (const int file : {terminal, end, before})
    close(file);
}

TEST(LineSpool, gives_back_what_another_one_is_filled_with) {
  LineSpool spool;
  std::string text;
  for (int i = 0; i < 5'000; ++i) {
    spool.add(std::to_string(i) + std::string(40, 'x'));
    text += std::to_string(i) + std::string(40, 'x') + '\n';
  }
  EXPECT_EQ(spool.text(), text);
  EXPECT_EQ(spool.text(), text);
  EXPECT_LT(spool.bytes_in_memory(), 70'000);
}

TEST(LineSpool, keeps_lines_in_memory_if_there_is_no_place_for_a_file) {
  const SetVariables set(Variables{{"TMPDIR", "/proc"}});
  LineSpool spool;
  std::string text;
  for (int i = 0; i < 5'000; ++i) {
    spool.add(std::string(40, 'y'));
    text += std::string(40, 'y') + '\n';
  }
  EXPECT_EQ(spool.text(), text);
}

TEST(Progress, shows_the_time_left_on_a_terminal_after_two_seconds) {
  Progress progress(10);
  const auto shown = [&](int64_t done, double seconds) {
    return progress.after({done, seconds, 0.5, 100, 2'000'000}, 100);
  };
  EXPECT_EQ(shown(1, 50),
            "\r\033[K[==                      ] 1/10  loss 0.500000  100 tokens/s  2.0 MB live");
  EXPECT_EQ(shown(2, 51.9).find("left"), std::string::npos);
  EXPECT_CONTAINS(shown(3, 54), "live  14 s left");  // 2 s a step, 7 to go
  EXPECT_CONTAINS(shown(5, 250), "live  4 min left");
  EXPECT_CONTAINS(shown(6, 18050), "live  4 h 0 min left");
  const std::string last = shown(10, 400);
  EXPECT_EQ(last.find("left"), std::string::npos);
  EXPECT_EQ(last.back(), '\n');
}

TEST(Progress, is_a_line_without_the_time_left_in_a_pipe) {
  Progress progress(10);
  progress.after({1, 0, 0.5, 100, 2'000'000}, 0);
  EXPECT_EQ(progress.after({5, 100, 0.5, 100, 2'000'000}, 0),
            "step 5/10  loss 0.5000000000  100 tokens/s  2.0 MB live\n");
}

TEST(Progress, fits_into_one_line_of_any_terminal) {
  Progress progress(10'000);
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
