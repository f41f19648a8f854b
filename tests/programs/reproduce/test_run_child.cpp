#include <command_line/child.h>
#include <command_line/run_program.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <common/exit_status.h>
#include <common/fork_process.h>
#include <array>
#include <csignal>

namespace fsdp {
namespace {

TEST(RunChild, a_signal_ends_the_child_and_removes_its_folder_before_it_ends_the_program) {
  for (const int signal : {SIGINT, SIGTERM}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    const pid_t program = fork_process([&] {
      return run_program("test", [&] {
        const OwnFolder folder("fsdp-test");
        const std::string told = " >/proc/self/fd/" + std::to_string(ends[1]);
        const std::string script = "echo " + folder.path().string() + told + "; exec sleep 100";
        return run_child({"sh", "-c", script}, folder.path() / "log").code;
      });
    });
    close(ends[1]);
    std::array<char, 4096> text{};
    ASSERT_GT(read(ends[0], text.data(), text.size() - 1), 1);
    const std::string folder(text.data(), std::string(text.data()).size() - 1);
    EXPECT_TRUE(std::filesystem::exists(folder + "/log"));
    kill(program, signal);
    const int status = status_of(program);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal);
    EXPECT_FALSE(std::filesystem::exists(folder));
    EXPECT_EQ(read(ends[0], text.data(), 1), 0) << "the child still has the pipe open";
    close(ends[0]);
  }
}

}  // namespace
}  // namespace fsdp
