#include <comm/mapping.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

char* mapped(const std::string& purpose, size_t bytes, int flags, int file) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, file, 0);
  if (base == MAP_FAILED) {
    throw std::runtime_error(purpose + ": cannot map " + std::to_string(bytes) +
                             " bytes (see ulimit -v): " + std::strerror(errno));
  }
  return static_cast<char*>(base);
}

}  // namespace

OpenFile::~OpenFile() {
  if (descriptor >= 0) close(descriptor);
}
OpenFile::OpenFile(OpenFile&& other) noexcept : descriptor(std::exchange(other.descriptor, -1)) {}

// No swap space is reserved, and no core file has it: what is mapped may be larger than the
// machine's memory.
Mapping::Mapping(const std::string& purpose, size_t bytes)
    : base_(mapped(purpose, bytes, MAP_ANONYMOUS | MAP_NORESERVE, -1)), bytes_(bytes) {
  madvise(base_, bytes, MADV_DONTDUMP);
}

Mapping::Mapping(const std::string& purpose, size_t bytes, const OpenFile& file)
    : base_(mapped(purpose, bytes, 0, file.descriptor)), bytes_(bytes) {}

Mapping::~Mapping() {
  munmap(base_, bytes_);
}

}  // namespace fsdp
