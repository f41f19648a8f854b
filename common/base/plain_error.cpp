#include <base/plain_error.h>

#include <cstring>
#include <filesystem>

namespace fsdp {

std::string beginning_of_error(const char* text) {
  return {text, strnlen(text, kMostOfError)};
}

std::string plain_text(const std::exception& error) {
  if (const auto* of_file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    const auto& path = of_file->path2().empty() ? of_file->path1() : of_file->path2();
    return path.string() + ": " + of_file->code().message();
  }
  std::string text = beginning_of_error(error.what());
  if (text.starts_with("[json.exception.")) text.erase(0, text.find("] ") + 2);
  // Torch's backtrace begins with the line "Exception raised from", so the returned text ends
  // before that line.
  return text.substr(0, text.find("\nException raised from "));
}

}  // namespace fsdp
