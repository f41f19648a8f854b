#pragma once

#include <base/child_program.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// Starts `command` with its output in the file `log`. Calls `prepare` in the new process.
// Throws: std::runtime_error if `log` can't be opened or if no process can be started.
std::unique_ptr<ChildProgram> start_child(const std::vector<std::string>& command,
                                          const std::filesystem::path& log,
                                          const std::function<void()>& prepare = nullptr);

// Runs `command` as start_child() does, and waits until it ends.
// - Calls `watch` about once a second with the process number of the command.
// - If this process dies, the command ends too.
// - From the first call on, this process passes SIGINT and SIGTERM on to the running command;
//   run_child() then throws Interrupted when the command has ended.
// Throws what start_child() throws.
ChildProgram::End run_child(const std::vector<std::string>& command,
                            const std::filesystem::path& log,
                            const std::function<void(int)>& watch = nullptr);

// Runs `command` in the same way, but lets it write where this process writes.
ChildProgram::End run_child(const std::vector<std::string>& command);

// Returns the last error in `log`, the output of a child: the text after "PROGRAM: " in a line that
// begins with it. Returns "" if there is none.
std::string error_in(const std::filesystem::path& log, const std::string& program);

// Not derived from std::exception, so only run_program() catches it: after all objects that own
// temporary files are destroyed, run_program() ends the process with the signal.
struct Interrupted {
  int signal;
};

// A new folder NAME-XXXXXX for files of this process, in the system's folder for temporary files.
// The destructor removes it with its files.
class OwnFolder {
 public:
  explicit OwnFolder(const std::string& name);  // throws std::runtime_error
  ~OwnFolder();
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace fsdp
