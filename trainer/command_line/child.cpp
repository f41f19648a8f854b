#include <base/text.h>
#include <command_line/child.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

volatile sig_atomic_t running_child = 0;
volatile sig_atomic_t asked_to_end = 0;

void pass_on(int signal) {
  asked_to_end = signal;
  if (running_child > 0) kill(running_child, signal);
}

// Waits until the child ends, and meanwhile does what the comment of run_child() says: calls
// `watch` about once a second and passes SIGINT and SIGTERM on to the child. Throws Interrupted at
// the end if this process has received one of these signals.
ChildProgram::End ended(ChildProgram& child, const std::function<void(int)>& watch) {
  running_child = child.process();
  while (!child.has_ended(1s)) {
    // Sends the signal to the child again every second: if the signal arrived before the child
    // called exec(), the child still had pass_on() as its handler, which did not end it.
    if (asked_to_end != 0) kill(child.process(), asked_to_end);
    if (watch) watch(child.process());
  }
  running_child = 0;
  const ChildProgram::End end = child.end(0s);
  if (asked_to_end != 0)
    throw Interrupted{asked_to_end};  // NOLINT: not a std::exception on purpose
  return end;
}

void pass_signals_on() {
  for (const int signal : {SIGINT, SIGTERM})
    std::signal(signal, pass_on);
}

}  // namespace

std::unique_ptr<ChildProgram> start_child(const std::vector<std::string>& command,
                                          const std::filesystem::path& log,
                                          const std::function<void()>& prepare) {
  const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (output < 0) throw std::runtime_error(log.string() + ": " + std::strerror(errno));
  auto child = std::make_unique<ChildProgram>([&](int) {
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    if (prepare) prepare();
    return command;
  });
  close(output);
  return child;
}

ChildProgram::End run_child(const std::vector<std::string>& command,
                            const std::filesystem::path& log,
                            const std::function<void(int)>& watch) {
  pass_signals_on();
  return ended(*start_child(command, log), watch);
}

ChildProgram::End run_child(const std::vector<std::string>& command) {
  pass_signals_on();
  ChildProgram child([&](int) { return command; });
  return ended(child, nullptr);
}

std::string error_in(const std::filesystem::path& log, const std::string& program) {
  const std::string begin = program + ": ";
  std::ifstream file(log);
  std::string error;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(begin)) error = one_line(line.substr(begin.size()));
  return error;
}

OwnFolder::OwnFolder(const std::string& name) {
  std::string path = (std::filesystem::temp_directory_path() / (name + "-XXXXXX")).string();
  if (mkdtemp(path.data()) == nullptr)
    throw std::runtime_error(path + ": this folder can't be made; set TMPDIR to another folder");
  path_ = path;
}

OwnFolder::~OwnFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace fsdp
