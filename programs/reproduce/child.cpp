#include <base/child_program.h>
#include <fcntl.h>
#include <reproduce/child.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <stdexcept>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

volatile sig_atomic_t running_child = 0;
volatile sig_atomic_t asked_to_end = 0;

void pass_on(int signal) {
  asked_to_end = signal;
  if (running_child > 0) kill(running_child, signal);
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

bool run_child(const std::filesystem::path& program, std::vector<std::string> arguments,
               const std::filesystem::path& log, const std::function<void(int)>& watch) {
  const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (output < 0) throw std::runtime_error(log.string() + ": " + std::strerror(errno));
  arguments.insert(arguments.begin(), program.string());
  ChildProgram child([&](int) {
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    return arguments;
  });
  close(output);
  running_child = child.process();
  if (asked_to_end != 0) kill(child.process(), asked_to_end);
  while (!child.has_ended(1s))
    if (watch) watch(child.process());
  running_child = 0;
  const ChildProgram::End end = child.end(0s);
  return end.code == 0 && end.signal == 0;
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
