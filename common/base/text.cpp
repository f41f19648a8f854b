#include <base/text.h>

#include <algorithm>

namespace fsdp {
namespace {

std::string wrap_line(std::string line, size_t columns, size_t indent) {
  std::string result;
  while (line.size() > columns) {
    size_t end = line.rfind(' ', columns);
    const bool in_a_word = end == std::string::npos || line.find_first_not_of(' ') > end;
    if (in_a_word) end = columns;
    result += line.substr(0, end) + '\n';
    line = std::string(indent, ' ') + line.substr(in_a_word ? end : end + 1);
  }
  return result + line;
}

}  // namespace

std::string wrap(const std::string& text, size_t columns, size_t indent) {
  std::string result;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    result += wrap_line(text.substr(begin, end - begin), columns, indent);
    if (end < text.size()) result += '\n';
    begin = end + 1;
  }
  return result;
}

std::string one_line(const std::string& text) {
  constexpr size_t kMost = 500;
  std::string line = text.size() > kMost ? text.substr(0, kMost) + "..." : text;
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return line;
}

std::string counted(int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string in_a_row(const std::vector<std::string>& words, const std::string& last) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? ' ' + last + ' ' : ", ") + words[i];
  return text;
}

}  // namespace fsdp
