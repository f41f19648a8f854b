#include <testing/frames.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fsdp {

std::vector<uint8_t> to_frame(const nlohmann::json& value) {
  std::vector<uint8_t> bytes(sizeof(uint64_t));
  nlohmann::json::to_cbor(value, bytes);
  const uint64_t length = bytes.size() - sizeof length;
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes;
}

bool write_frame(int file, const std::vector<uint8_t>& frame) {
  for (size_t sent = 0; sent < frame.size();) {
    const ssize_t count = write(file, frame.data() + sent, frame.size() - sent);
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) sent += static_cast<size_t>(count);
  }
  return true;
}

}  // namespace fsdp
