#include <reproduce/last_line.h>

#include <sstream>

namespace fsdp {

std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string line, last;
  while (std::getline(lines, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace fsdp
