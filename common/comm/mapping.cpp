#include <comm/mapping.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace fsdp {
namespace {

char* mapped(const std::string& purpose, void* where, size_t bytes, int protection, int flags,
             int file) {
  void* base = mmap(where, bytes, protection, flags, file, 0);
  if (base == MAP_FAILED) {
    throw std::runtime_error(purpose + ": cannot map " + std::to_string(bytes) +
                             " bytes (see ulimit -v): " + std::strerror(errno));
  }
  return static_cast<char*>(base);
}

// Addresses that nothing else will have, without memory.
char* reserved(const std::string& purpose, size_t bytes, size_t alignment) {
  char* begin = mapped(purpose, nullptr, bytes + alignment, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) & (alignment - 1);
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, alignment - before);
  return begin + before;
}

}  // namespace

OpenFile::~OpenFile() {
  if (descriptor >= 0) close(descriptor);
}
OpenFile::OpenFile(OpenFile&& other) noexcept : descriptor(std::exchange(other.descriptor, -1)) {}
OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  std::swap(descriptor, other.descriptor);
  return *this;
}

OpenFile memory_file(const char* name) {
  OpenFile file(memfd_create(name, MFD_CLOEXEC));
  if (file.descriptor < 0)
    throw std::system_error(errno, std::generic_category(), "a file in memory");
  return file;
}

std::string content_of(const OpenFile& file, const std::string& what) {
  const off_t bytes = lseek(file.descriptor, 0, SEEK_END);
  std::string text(static_cast<size_t>(bytes), '\0');
  for (size_t read = 0; read < text.size();) {
    const ssize_t count =
        pread(file.descriptor, text.data() + read, text.size() - read, static_cast<off_t>(read));
    if (count > 0) read += static_cast<size_t>(count);
    if (count == 0 || (count < 0 && errno != EINTR))
      throw std::system_error(errno, std::generic_category(), what);
  }
  return text;
}

Mapping::Mapping(const std::string& purpose, size_t bytes)
    : Mapping(purpose, bytes, OpenFile(-1), size_t{1} << 12) {}

Mapping::Mapping(const std::string& purpose, size_t bytes, const OpenFile& file)
    : base_(mapped(purpose, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor)),
      bytes_(bytes) {}

Mapping::Mapping(const std::string& purpose, size_t bytes, const OpenFile& file, size_t alignment)
    : base_(
          mapped(purpose, reserved(purpose, bytes, alignment), bytes, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED | MAP_NORESERVE | (file.descriptor < 0 ? MAP_ANONYMOUS : 0),
                 file.descriptor)),
      bytes_(bytes) {
  madvise(base_, bytes, MADV_DONTDUMP);
}

Mapping::~Mapping() {
  munmap(base_, bytes_);
}

}  // namespace fsdp
