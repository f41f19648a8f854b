#include <base/processes.h>
#include <fcntl.h>
#include <poll.h>
#include <reproduce/child.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace fsdp {
namespace {

volatile sig_atomic_t running_child = 0;
volatile sig_atomic_t asked_to_end = 0;

void pass_on(int signal) {
  asked_to_end = signal;
  if (running_child > 0) kill(running_child, signal);
}

pid_t spawn(const std::filesystem::path& program, std::vector<std::string>& arguments,
            const std::filesystem::path& log) {
  std::string name = program.string();
  std::vector<char*> argv{name.data()};
  for (std::string& argument : arguments)
    argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (output < 0) throw std::runtime_error(log.string() + ": " + std::strerror(errno));
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    end_with(parent);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execv(name.c_str(), argv.data());
    dprintf(STDERR_FILENO, "%s: %s\n", name.c_str(), std::strerror(errno));
    _exit(127);
  }
  close(output);
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  return child;
}

void watch_until_end(pid_t child, const std::function<void(int)>& watch) {
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  if (descriptor < 0) return;
  pollfd ended{descriptor, POLLIN, 0};
  while (poll(&ended, 1, /*milliseconds=*/1000) <= 0)
    watch(child);
  close(descriptor);
}

}  // namespace

void pass_on_signals() {
  struct sigaction action {};
  action.sa_handler = pass_on;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int ending_signal() {
  return asked_to_end;
}

void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  raise(signal);
  _exit(128 + signal);
}

int run_child(const std::filesystem::path& program, std::vector<std::string> arguments,
              const std::filesystem::path& log, const std::function<void(int)>& watch) {
  const pid_t child = spawn(program, arguments, log);
  running_child = child;
  if (asked_to_end != 0) kill(child, asked_to_end);
  if (watch) watch_until_end(child, watch);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  running_child = 0;
  return status;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string line, last;
  while (std::getline(lines, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace fsdp
