#include <tokenizer/utf8.h>
#include <tokenizer/utf8_stream.h>

#include <utility>

namespace fsdp {
namespace {

std::string valid(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint point = code_point_at(bytes, at);
    append_utf8(text, point.value == kInvalid ? U'\uFFFD' : point.value);
    at += point.bytes;
  }
  return text;
}

}  // namespace

std::string Utf8Stream::add(std::string_view bytes) {
  unfinished_ += bytes;
  const size_t complete = unfinished_.size() - unfinished_bytes(unfinished_);
  const std::string text = valid(std::string_view(unfinished_).substr(0, complete));
  unfinished_.erase(0, complete);
  return text;
}

std::string Utf8Stream::end() {
  return valid(std::exchange(unfinished_, {}));
}

}  // namespace fsdp
