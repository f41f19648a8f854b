#pragma once

#include <base/child_program.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// Starts the program `command` as a child process, whose stdout and stderr go to the file `log`.
// The child calls `prepare`, if it is not null, before it executes the program.
// Throws: std::runtime_error if `log` can't be opened; std::system_error if no process can be
// started.
std::unique_ptr<ChildProgram> start_child(const std::vector<std::string>& command,
                                          const std::filesystem::path& log,
                                          const std::function<void()>& prepare = nullptr);

// Runs the program `command` with its output in the file `log`, as start_child() does, and waits
// until it ends.
// - Calls `watch` about once a second with the process number of the command.
// - If this process dies, the command ends too.
// - From the first call of run_child() on, this process passes SIGINT and SIGTERM on to the running
//   command; run_child() then throws Interrupted when the command has ended.
// Throws what start_child() throws.
ChildProgram::End run_child(const std::vector<std::string>& command,
                            const std::filesystem::path& log,
                            const std::function<void(int)>& watch = nullptr);

// Runs the program `command` and waits until it ends, as the overload of run_child() with `log`
// does, but the command writes to the stdout and stderr of this process.
ChildProgram::End run_child(const std::vector<std::string>& command);

// Returns the last error in the file `log`, the output of a child that ran `program`: the text
// after "PROGRAM: " in the last line that begins with it. Returns "" if there is no such line.
std::string error_in(const std::filesystem::path& log, const std::string& program);

// Thrown by run_child() when SIGINT or SIGTERM has ended the run. It is not derived from
// std::exception, so only run_program() catches it: after all objects that own temporary files are
// destroyed, run_program() ends this process with the same signal.
struct Interrupted {
  int signal;
};

// Makes a new folder NAME-XXXXXX for files of this process, in the system's folder for temporary
// files. The destructor removes the folder with its files.
class OwnFolder {
 public:
  // Makes the folder. Throws std::runtime_error if the folder can't be made.
  explicit OwnFolder(const std::string& name);
  ~OwnFolder();
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace fsdp
