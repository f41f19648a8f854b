#include <check/printed.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace fsdp {
namespace {

// [bytes] Printed::text() reads at most this much of the test program's output.
constexpr int64_t kRead = int64_t{64} << 10;
constexpr int64_t kLinesOfEachEnd = 30;
constexpr size_t kLongLine = 500;  // [bytes] a report shows at most this much of a line of output

// Returns the position after the `count`-th line of `text`, or the end of `text`.
size_t end_of_lines(const std::string& text, int64_t count) {
  size_t end = 0;
  for (; count > 0 && end < text.size(); --count)
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  return end;
}

// Returns the position at which the last `count` lines of `text` begin.
size_t begin_of_last_lines(const std::string& text, int64_t count) {
  size_t begin = text.size();
  for (; count > 0 && begin > 0; --count) {
    const size_t newline = begin < 2 ? std::string::npos : text.rfind('\n', begin - 2);
    begin = newline == std::string::npos ? 0 : newline + 1;
  }
  return begin;
}

// Returns the text with a line feed at the end of each line. Of a line over kLongLine bytes, keeps
// only the beginning, and appends how many bytes are left out.
std::string in_short_lines(const std::string& text) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    result += text.substr(begin, std::min(end - begin, kLongLine));
    if (end - begin > kLongLine)
      result += "... (" + std::to_string(end - begin - kLongLine) + " more bytes)";
    result += '\n';
    begin = end + 1;
  }
  return result;
}

}  // namespace

Printed::Printed() : file_(memory_file("fsdp-printed")) {}

int64_t Printed::size() const {
  struct stat status {};
  return fstat(number(), &status) == 0 ? status.st_size : 0;
}

std::string Printed::text(int64_t begin, int64_t end) const {
  std::string text(static_cast<size_t>(std::clamp(end - begin, int64_t{0}, kRead)), '\0');
  const ssize_t count = pread(number(), text.data(), text.size(), begin);
  text.resize(static_cast<size_t>(std::max(count, ssize_t{0})));
  return text;
}

std::string Printed::shown(int64_t begin, int64_t end) const {
  const std::string first = text(begin, end);
  const bool is_all = end - begin <= kRead;
  if (is_all && end_of_lines(first, 2 * kLinesOfEachEnd) == first.size())
    return in_short_lines(first);
  const std::string head = first.substr(0, end_of_lines(first, kLinesOfEachEnd));
  const int64_t head_end = begin + static_cast<int64_t>(head.size());
  const std::string last = text(std::max(head_end, end - kRead), end);
  const std::string tail = last.substr(begin_of_last_lines(last, kLinesOfEachEnd));
  int64_t left_out = 0;
  for (int64_t at = head_end; at < end - static_cast<int64_t>(tail.size()); at += kRead) {
    const std::string part =
        text(at, std::min(at + kRead, end - static_cast<int64_t>(tail.size())));
    left_out += std::ranges::count(part, '\n');
  }
  return in_short_lines(head) + "... " + std::to_string(left_out) +
         " lines left out; ./fsdp check --output FILE writes all that the tests print\n" +
         in_short_lines(tail);
}

void Printed::append_to(const std::string& path, const std::string& test, int64_t begin,
                        int64_t end) const {
  if (begin >= end) return;
  std::ofstream out(path, std::ios::app);
  out << "== " << test << '\n';
  char last = '\n';
  for (int64_t at = begin; at < end; at += kRead) {
    const std::string part = text(at, std::min(at + kRead, end));
    if (!part.empty()) last = part.back();
    out << part;
  }
  if (last != '\n') out << '\n';
  if (!out.flush()) throw std::runtime_error(path + " cannot be written: is its disk full?");
}

}  // namespace fsdp
