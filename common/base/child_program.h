#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// Runs another program, which writes to a pipe. The program leads a process group, which end() or
// the destructor of this object kills. The program is also killed if the thread that made this
// object ends, for whatever reason.
class ChildProgram {
 public:
  using Clock = std::chrono::steady_clock;

  // `prepare` runs in the new process. It gets the writing end of the pipe, arranges descriptors
  // and environment, and returns the command and its arguments. If the command cannot be run, the
  // new process prints the reason to its standard error and exits with 127.
  // Throws: std::system_error if the pipe or the process cannot be made.
  explicit ChildProgram(const std::function<std::vector<std::string>(int pipe)>& prepare);
  ~ChildProgram();
  ChildProgram(const ChildProgram&) = delete;
  ChildProgram& operator=(const ChildProgram&) = delete;

  pid_t process() const { return pid_; }

  // Waits until the program has written bytes to the pipe, and reads at most `most` of them.
  // Returns how many it read, 0 at the end of the pipe, or nullopt if no byte arrives before
  // `deadline`.
  std::optional<size_t> read(void* into, size_t most, Clock::time_point deadline);

  struct End {
    int code{};    // the exit status; 0 if a signal killed the program
    int signal{};  // the signal that killed the program, else 0

    bool ok() const { return code == 0 && signal == 0; }
    std::string text() const;  // for messages: "left by exit(3)" or "was killed: Aborted"
  };

  // Waits until the program has ended, for at most the time `moment`. Returns whether the program
  // has ended.
  bool has_ended(std::chrono::milliseconds moment) const;

  // Waits until the program has ended, for at most the time `moment`. Then kills the process group:
  // the program, if it still runs, and the processes that it has forked. Returns how the program
  // ended.
  End end(std::chrono::milliseconds moment);

 private:
  pid_t pid_{};
  int pipe_{};
};

}  // namespace fsdp
