#include <base/whole_file.h>
#include <base/write_all.h>
#include <fcntl.h>
#include <report/run_log.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace fsdp {
RunLog::RunLog(std::string path)
    : path_(std::move(path)),
      file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (file_ < 0) throw std::runtime_error("--log " + path_ + ": " + std::strerror(errno));
}

RunLog::~RunLog() {
  if (file_ >= 0) close(file_);
}

void RunLog::write(const nlohmann::ordered_json& line) {
  if (file_ < 0) return;
  struct stat before {};
  fstat(file_, &before);
  const int error = write_all(file_, line.dump() + '\n');
  if (error == 0) return;
  std::fprintf(stderr, "--log %s: %s; training goes on without it\n", path_.c_str(),
               std::strerror(error));
  // No half of a line is left.
  if (S_ISREG(before.st_mode) && ftruncate(file_, before.st_size) != 0) errno = 0;
  close(std::exchange(file_, -1));
}

std::string reason_not_to_log(const std::string& path) {
  if (!std::filesystem::exists(path)) return reason_not_to_write(path);
  if (std::filesystem::is_directory(path)) return std::strerror(EISDIR);
  return access(path.c_str(), W_OK) == 0 ? "" : std::strerror(errno);
}

}  // namespace fsdp
