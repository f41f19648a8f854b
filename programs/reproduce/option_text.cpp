#include <reproduce/option_text.h>

#include <algorithm>
#include <iterator>
#include <sstream>

namespace fsdp {

std::string joined(const TrainOptions& options) {
  std::string text;
  for (const std::string& option : options)
    text += (text.empty() ? "" : " ") + option;
  return text;
}

TrainOptions words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::string value_of(const TrainOptions& options, const std::string& option) {
  const auto at = std::ranges::find(options, option);
  return at == options.end() || at + 1 == options.end() ? "" : *(at + 1);
}

}  // namespace fsdp
