#include <malloc.h>
#include <memory/counting_allocator.h>
#include <memory/written_bytes.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace fsdp {

int64_t written_bytes() {
  counting_allocator::release_kept();
  malloc_trim(0);
  std::ifstream file("/proc/self/smaps");
  int64_t bytes = 0;
  bool is_private = false, found = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first, second;
    words >> first >> second;
    // The first line of a mapping in smaps, such as "7f00-7fff rw-p", does not begin with "NAME:".
    if (!first.ends_with(':')) {
      is_private = second.ends_with('p');
    } else if (is_private && (first == "Private_Dirty:" || first == "Swap:")) {
      bytes += std::stoll(second) * 1024;
      found = true;
    }
  }
  if (!found) throw std::runtime_error("written_bytes(): /proc/self/smaps has no Private_Dirty");
  return bytes;
}

}  // namespace fsdp
