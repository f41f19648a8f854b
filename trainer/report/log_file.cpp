#include <report/log_file.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace fsdp {
namespace {

constexpr int64_t kMost = 1 << 20;  // the most bytes that end_of_file() reads

// Returns the last bytes of the file `path`, at most kMost, and their offset in the file.
std::pair<std::string, int64_t> end_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(file ? static_cast<int64_t>(file.tellg()) : 0);
  const int64_t begin = std::max<int64_t>(0, size - kMost);
  std::string text(static_cast<size_t>(std::max<int64_t>(0, size - begin)), '\0');
  file.seekg(begin);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  return {text, begin};
}

}  // namespace

LogEnd end_of_log(const std::string& path) {
  auto [text, begin] = end_of_file(path);
  LogEnd end;
  size_t stop = text.rfind('\n');  // ignores half a line after the last newline
  if (stop == std::string::npos) return {text.empty() || text[0] == '{', std::nullopt};
  while (stop != std::string::npos) {
    const size_t before = stop == 0 ? std::string::npos : text.rfind('\n', stop - 1);
    // If the line begins before the bytes that were read, only its end is known.
    if (before == std::string::npos && begin > 0) break;
    const size_t first = before == std::string::npos ? 0 : before + 1;
    const auto line = nlohmann::json::parse(text.substr(first, stop - first), nullptr, false);
    end.is_log = line.is_object() && (line.contains("step") || line.contains("failure") ||
                                      line.contains("resumed_after") || line.contains("final"));
    if (!end.is_log) return end;
    if (line.contains("step") && line["step"].is_number_integer())
      return {true, line["step"].get<int64_t>()};
    stop = before;
  }
  return end;
}

void remove_half_a_line(const std::string& path) {
  const auto [text, begin] = end_of_file(path);
  if (text.empty() || text.back() == '\n') return;
  const size_t last = text.rfind('\n');
  if (last == std::string::npos && begin > 0) return;
  const auto whole = begin + static_cast<int64_t>(last == std::string::npos ? 0 : last + 1);
  if (truncate(path.c_str(), whole) != 0) return;  // if truncate() fails, the half line stays
}

}  // namespace fsdp
