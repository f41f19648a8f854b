#include <base/child_program.h>
#include <base/processes.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace fsdp {
namespace {

[[noreturn]] void become(std::vector<std::string> command) {
  std::vector<char*> words;
  for (std::string& word : command)
    words.push_back(word.data());
  words.push_back(nullptr);
  execvp(words[0], words.data());
  dprintf(STDERR_FILENO, "%s: %s\n", words[0], std::strerror(errno));
  _exit(127);
}

int wait_for(int file, std::chrono::milliseconds moment) {
  pollfd waiting{file, POLLIN, 0};
  return poll(&waiting, 1, static_cast<int>(moment.count()));
}

}  // namespace

ChildProgram::ChildProgram(const std::function<std::vector<std::string>(int)>& prepare) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  setpgid(pid_, pid_);  // parent and child both call setpgid(), because either may run first
  if (pid_ == 0) {
    end_with(parent);
    become(prepare(ends[1]));
  }
  close(ends[1]);
  pipe_ = ends[0];
}

ChildProgram::~ChildProgram() {
  if (pid_ > 0) end(std::chrono::milliseconds(0));
  close(pipe_);
}

std::optional<size_t> ChildProgram::read(void* into, size_t most, Clock::time_point deadline) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return std::nullopt;
    if (wait_for(pipe_, left) <= 0) continue;
    const ssize_t count = ::read(pipe_, into, most);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "read");
  }
}

std::string ChildProgram::End::text() const {
  if (signal != 0) return std::string("was killed: ") + strsignal(signal);
  return "left by exit(" + std::to_string(code) + ')';
}

bool ChildProgram::has_ended(std::chrono::milliseconds moment) const {
  const int self = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  wait_for(self, moment);
  close(self);
  siginfo_t ended{};
  return waitid(P_PID, pid_, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == pid_;
}

ChildProgram::End ChildProgram::end(std::chrono::milliseconds moment) {
  has_ended(moment);
  kill(-pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  if (WIFSIGNALED(status)) return {0, WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

}  // namespace fsdp
