#include <testing/listed.h>

#include <algorithm>

namespace fsdp {
namespace {

std::vector<nlohmann::json> split(const std::string& text, const std::string& separator) {
  std::vector<nlohmann::json> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  return parts;
}

}  // namespace

std::vector<nlohmann::json> listed(const nlohmann::json& observation) {
  if (observation.is_array()) return observation.get<std::vector<nlohmann::json>>();
  if (!observation.is_string()) return {};
  const auto& text = observation.get_ref<const std::string&>();
  for (const char* separator : {"; ", " | "}) {
    if (text.find(separator) != std::string::npos) return split(text, separator);
  }
  return {};
}

size_t first_difference(const std::vector<nlohmann::json>& one,
                        const std::vector<nlohmann::json>& other) {
  const auto place = std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first;
  return static_cast<size_t>(place - one.begin());
}

}  // namespace fsdp
