#include <sys/mman.h>
#include <sys/stat.h>
#include <testing/channel.h>
#include <testing/frames.h>
#include <unistd.h>

#include <cstring>
#include <system_error>

namespace fsdp {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

Channel::Channel() : file_(memfd_create("fsdp-observations", MFD_CLOEXEC)) {
  if (file_ < 0) fail("observations: memfd_create");
}

Channel::~Channel() {
  close(file_);
}

void Channel::send(const nlohmann::json& frame) {
  const std::vector<uint8_t> bytes = to_frame(frame);
  std::lock_guard lock(mutex_);
  if (!write_frame(file_, bytes)) fail("observations: write");
}

std::vector<nlohmann::json> Channel::frames() const {
  struct stat status {};
  if (fstat(file_, &status) != 0) fail("observations: fstat");
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size == 0) return {};
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file_, 0);
  if (mapped == MAP_FAILED) fail("observations: mmap");

  std::vector<nlohmann::json> frames;
  const auto* data = static_cast<const uint8_t*>(mapped);
  uint64_t length = 0;
  for (uint64_t at = 0; at + sizeof length <= size; at += length) {
    std::memcpy(&length, data + at, sizeof length);
    at += sizeof length;
    if (length > size - at) break;
    frames.push_back(from_frame(data + at, length));
  }
  munmap(mapped, size);
  return frames;
}

}  // namespace fsdp
