#include <base/memory_file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace fsdp {

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
  struct stat status {};
  if (fstat(file.descriptor, &status) != 0)
    throw std::system_error(errno, std::generic_category(), what);
  std::string text(static_cast<size_t>(status.st_size), '\0');
  for (size_t read = 0; read < text.size();) {
    const ssize_t count =
        pread(file.descriptor, text.data() + read, text.size() - read, static_cast<off_t>(read));
    if (count > 0) read += static_cast<size_t>(count);
    if (count == 0 || (count < 0 && errno != EINTR))
      throw std::system_error(errno, std::generic_category(), what);
  }
  return text;
}

}  // namespace fsdp
