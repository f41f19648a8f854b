#include <base/file_field.h>

#include <fstream>

namespace fsdp {

std::string field_of_file(const std::filesystem::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(" \t:=\"", key.size());
    const size_t end = line.find_last_not_of(" \t\"");
    return begin == std::string::npos ? "" : line.substr(begin, end - begin + 1);
  }
  return "";
}

}  // namespace fsdp
