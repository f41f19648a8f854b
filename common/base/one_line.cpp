#include <base/one_line.h>

#include <algorithm>

namespace fsdp {

std::string one_line(const std::string& text) {
  constexpr size_t kMost = 500;
  std::string line = text.size() > kMost ? text.substr(0, kMost) + "..." : text;
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return line;
}

}  // namespace fsdp
