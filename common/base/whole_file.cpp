#include <base/whole_file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace fsdp {

void write_whole_file(const std::string& path, const std::string& content) {
  const std::string partial = path + ".partial";
  std::ofstream file(partial, std::ios::binary);
  file << content;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(partial, path, error);
  if (!file || error) {
    std::filesystem::remove(partial, error);
    throw std::runtime_error(path + ": can't be written");
  }
}

bool can_be_written(const std::string& path) {
  const auto folder = std::filesystem::absolute(path).parent_path();
  return access(folder.c_str(), W_OK) == 0 && !std::filesystem::is_directory(path);
}

}  // namespace fsdp
