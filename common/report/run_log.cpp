#include <base/whole_file.h>
#include <fcntl.h>
#include <report/run_log.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

// Writes all of `text`. Returns 0 or errno. A reader that has gone is an error like others, not the
// end of the process.
int write_all(int file, std::string_view text) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);
  int error = 0;
  while (!text.empty() && error == 0) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written >= 0) text.remove_prefix(static_cast<size_t>(written));
    if (written < 0 && errno != EINTR) error = errno;
  }
  sigaction(SIGPIPE, &before, nullptr);
  return error;
}

}  // namespace

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

bool can_be_logged_to(const std::string& path) {
  if (!std::filesystem::exists(path)) return can_be_written(path);
  return access(path.c_str(), W_OK) == 0 && !std::filesystem::is_directory(path);
}

}  // namespace fsdp
