#include <base/mapping.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>

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

// Reserves `bytes` bytes of addresses that begin at a multiple of `alignment`, so that the system
// maps nothing else there. There is no memory behind them until the caller maps some over them.
char* reserved(const std::string& purpose, size_t bytes, size_t alignment) {
  char* begin = mapped(purpose, nullptr, bytes + alignment, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) & (alignment - 1);
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, alignment - before);
  return begin + before;
}

}  // namespace

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
