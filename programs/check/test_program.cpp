#include <check/test_program.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kMostShown = int64_t{64} << 10;
constexpr int64_t kMostPrinted = int64_t{256} << 20;

// In the new process.
std::vector<std::string> test_command(const std::string& path,
                                      const std::vector<std::string>& arguments, int printed,
                                      int records) {
  dup2(printed, STDOUT_FILENO);
  dup2(printed, STDERR_FILENO);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  const int kept = fcntl(records, F_DUPFD, 3);  // a copy that exec() does not close
  std::vector<std::string> command{path, "--results_to=" + std::to_string(kept)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace

MemoryFile::MemoryFile() : file_(memfd_create("fsdp-printed", MFD_CLOEXEC)) {
  if (file_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
}

MemoryFile::~MemoryFile() {
  close(file_);
}

int64_t MemoryFile::size() const {
  struct stat status {};
  return fstat(file_, &status) == 0 ? status.st_size : 0;
}

std::string MemoryFile::text(int64_t begin, int64_t end) const {
  std::string text(static_cast<size_t>(std::clamp(end - begin, int64_t{0}, kMostShown)), '\0');
  const ssize_t count = pread(file_, text.data(), text.size(), begin);
  text.resize(static_cast<size_t>(std::max(count, ssize_t{0})));
  return text;
}

TestProgram::TestProgram(const std::string& path, const std::vector<std::string>& arguments)
    : child_(
          [&](int records) { return test_command(path, arguments, printed_.number(), records); }) {}

TestProgram::Read TestProgram::next(nlohmann::json& record, Clock::time_point deadline) {
  for (;;) {
    const size_t end = records_.find('\n');
    if (end != std::string::npos) {
      const std::string line = records_.substr(0, end);
      records_.erase(0, end + 1);
      record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!record.is_object()) throw std::runtime_error("wrote what is no result: " + line);
      return Read::record;
    }
    char bytes[4096];
    const auto count = child_.read(bytes, sizeof bytes, std::min(deadline, Clock::now() + 1s));
    if (count && *count == 0) return Read::end;
    if (count) records_.append(bytes, *count);
    if (!count && Clock::now() >= deadline) return Read::timeout;
    if (printed_.size() > kMostPrinted) return Read::flood;
  }
}

}  // namespace fsdp
