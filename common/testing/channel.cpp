#include <base/write_all.h>
#include <testing/channel.h>
#include <testing/frames.h>

#include <cstring>
#include <string_view>
#include <system_error>

namespace fsdp {

void Channel::send(const nlohmann::json& frame) {
  const std::string bytes = to_frame(frame);
  std::lock_guard lock(mutex_);
  if (const int error = write_all(file_.descriptor, bytes); error != 0)
    throw std::system_error(error, std::generic_category(), "an observation");
}

std::vector<nlohmann::json> Channel::frames() const {
  const std::string sent = content_of(file_, "observations");
  std::vector<nlohmann::json> frames;
  uint64_t length = 0;
  for (size_t at = 0; at + sizeof length <= sent.size(); at += length) {
    std::memcpy(&length, sent.data() + at, sizeof length);
    at += sizeof length;
    if (length > sent.size() - at) break;
    frames.push_back(from_frame(std::string_view(sent).substr(at, length)));
  }
  return frames;
}

}  // namespace fsdp
