#include <fcntl.h>
#include <gtest/gtest.h>
#include <report/telemetry.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

namespace fsdp {
namespace {

// A line has about 90 bytes, so 20,000 lines have 1.8 MB.
TEST(Telemetry, the_json_lines_of_20000_steps_keep_few_bytes_in_memory) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/json";
  for (const std::string& json : {std::string(), path}) {
    Telemetry telemetry({20'000}, json, /*lines_only=*/true);
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

// Open MPI gives rank 0 a terminal even if the output of mpirun goes to a file.
TEST(Telemetry, a_run_under_a_launcher_prints_lines_and_no_progress_bar_on_a_terminal) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
  const int end = open(ptsname(terminal), O_RDWR | O_NOCTTY), before = dup(STDOUT_FILENO);
  const auto printed = [&](bool lines_only) {
    std::fflush(stdout);
    dup2(end, STDOUT_FILENO);
    Telemetry({4}, "", lines_only).step(0, 0.5, 1000, std::nullopt, 0);
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

}  // namespace
}  // namespace fsdp
