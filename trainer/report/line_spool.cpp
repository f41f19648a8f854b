#include <base/write_all.h>
#include <fcntl.h>
#include <report/line_spool.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace fsdp {
namespace {

constexpr size_t kPiece = size_t{1} << 16;  // number of bytes that are read or written at a time

int open_spool() {
  std::error_code none;
  std::string path = (std::filesystem::temp_directory_path(none) / "fsdp-lines-XXXXXX").string();
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file >= 0) unlink(path.c_str());
  return file;
}

}  // namespace

LineSpool::~LineSpool() {
  if (file_ >= 0) close(file_);
}

void LineSpool::add(const std::string& line) {
  in_memory_ += line + '\n';
  if (failed_ || in_memory_.size() < kPiece) return;
  if (file_ < 0) file_ = open_spool();
  failed_ = file_ < 0 || write_all(file_, in_memory_) != 0;
  if (failed_) {
    // Removes what the failed write has left in the file. If ftruncate() fails, nothing is lost:
    // read() reads only the first in_file_ bytes.
    if (file_ >= 0 && ftruncate(file_, in_file_) != 0) errno = 0;
    return;
  }
  in_file_ += static_cast<int64_t>(in_memory_.size());
  in_memory_.clear();
}

void LineSpool::read(const std::function<void(const std::string& piece)>& take) const {
  std::string piece;
  for (int64_t done = 0; done < in_file_;) {
    piece.resize(static_cast<size_t>(std::min<int64_t>(kPiece, in_file_ - done)));
    const ssize_t count = pread(file_, piece.data(), piece.size(), done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    piece.resize(static_cast<size_t>(count));
    take(piece);
    done += count;
  }
  if (!in_memory_.empty()) take(in_memory_);
}

std::string LineSpool::text() const {
  std::string text;
  read([&](const std::string& piece) { text += piece; });
  return text;
}

}  // namespace fsdp
