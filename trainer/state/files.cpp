#include <base/write_all.h>
#include <fcntl.h>
#include <state/files.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(path + ": " + what + ": " + std::strerror(errno));
}

}  // namespace

FileWriter::FileWriter(std::string path)
    : path_(std::move(path)),
      descriptor_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) fail(path_, "can't be made");
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(const void* bytes, size_t count) {
  errno = write_all(descriptor_, {static_cast<const char*>(bytes), count});
  if (errno != 0) fail(path_, "can't be written");
  hash_.update({static_cast<const std::byte*>(bytes), count});
  size_ += static_cast<int64_t>(count);
}

void FileWriter::close() {
  const bool on_disk = fsync(descriptor_) == 0;
  if (!on_disk || ::close(std::exchange(descriptor_, -1)) != 0) fail(path_, "can't be written");
}

FileReader::FileReader(std::string path)
    : path_(std::move(path)), descriptor_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (descriptor_ < 0 || fstat(descriptor_, &status) != 0) {
    const int error = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    errno = error;
    fail(path_, "can't be read");
  }
  if (!S_ISREG(status.st_mode)) {  // throws for a FIFO, because reading it could block forever
    ::close(descriptor_);
    throw std::runtime_error(path_ + ": is no plain file");
  }
  size_ = status.st_size;
}

FileReader::~FileReader() {
  ::close(descriptor_);
}

void FileReader::read(int64_t offset, void* into, size_t count) const {
  auto* next = static_cast<char*>(into);
  while (count > 0) {
    const ssize_t got = pread(descriptor_, next, count, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "can't be read");
    if (got == 0) throw std::runtime_error(path_ + ": ends too early");
    next += got;
    offset += got;
    count -= static_cast<size_t>(got);
  }
}

std::string FileReader::sha256() const {
  constexpr int64_t kChunk = 1 << 20;
  Sha256 hash;
  std::vector<std::byte> chunk(static_cast<size_t>(std::min(kChunk, size_)));
  for (int64_t offset = 0; offset < size_; offset += kChunk) {
    const auto count = static_cast<size_t>(std::min(kChunk, size_ - offset));
    read(offset, chunk.data(), count);
    hash.update({chunk.data(), count});
  }
  return hash.hex();
}

std::string read_text(const std::string& path, int64_t most) {
  const FileReader file(path);
  if (file.size() > most) {
    throw std::runtime_error(path + ": has " + std::to_string(file.size()) +
                             " bytes; there should be at most " + std::to_string(most));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

void refuse_lfs_pointer(const std::string& path, std::string_view begin) {
  if (begin.starts_with("version https://git-lfs."))
    throw std::runtime_error(path +
                             ": is only a pointer of Git LFS to the file; fetch the file with "
                             "git lfs pull, or with: hf download NAME --local-dir FOLDER");
}

void sync_folder(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail(path, "can't be read");
  const bool on_disk = fsync(descriptor) == 0;
  const int error = errno;
  ::close(descriptor);
  errno = error;
  if (!on_disk) fail(path, "can't be written");
}

}  // namespace fsdp
