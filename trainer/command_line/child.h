#pragma once

#include <base/child_program.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// Runs a command with its output in the file `log`, and waits for it. Calls `watch` with its
// process number each second. If this process dies, the command ends. From the first call on,
// SIGINT and SIGTERM go to the command that runs, and the call then throws Interrupted. Throws
// std::runtime_error if `log` can't be opened or there is no process left.
ChildProgram::End run_child(const std::vector<std::string>& command,
                            const std::filesystem::path& log,
                            const std::function<void(int)>& watch = nullptr);

// No std::exception, so that run_program() alone handles it: it ends the process by the signal when
// all objects are gone that have files.
struct Interrupted {
  int signal;
};

// A new folder for files of this process, NAME-XXXXXX, which is removed with this object.
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
