#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// Another program, and the pipe that it writes to. It leads a process group, which ends with this
// object. The program also ends with the thread that made this object, however that ends.
class ChildProgram {
 public:
  using Clock = std::chrono::steady_clock;

  // `prepare` runs in the new process with the end of the pipe that is written to: it arranges
  // descriptors and environment, and returns the command and its arguments. Throws
  // std::system_error if no process can be made. A command that cannot be run says why on its
  // standard error, and ends with 127.
  explicit ChildProgram(const std::function<std::vector<std::string>(int pipe)>& prepare);
  ~ChildProgram();
  ChildProgram(const ChildProgram&) = delete;
  ChildProgram& operator=(const ChildProgram&) = delete;

  pid_t process() const { return pid_; }

  // Waits for bytes from it and reads `most` of them at most. How many: 0 at the end of the pipe;
  // none by `deadline`: nullopt.
  std::optional<size_t> read(void* into, size_t most, Clock::time_point deadline);

  struct End {
    int code{};    // the argument of exit()
    int signal{};  // that killed it, else 0

    bool ok() const { return code == 0 && signal == 0; }
    std::string text() const;  // "left by exit(3)", "was killed: Aborted"
  };

  bool has_ended(std::chrono::milliseconds moment) const;  // waits for that, at most for `moment`

  // Waits until it ends, at most for `moment`; then kills it and all that it has forked.
  End end(std::chrono::milliseconds moment);

 private:
  pid_t pid_{};
  int pipe_{};
};

}  // namespace fsdp
