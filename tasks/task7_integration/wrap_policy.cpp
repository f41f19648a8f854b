#include <base/todo.h>
#include <wrap_policy.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>
#include <string_view>

namespace fsdp {

namespace {

int64_t parse_bytes(const std::string& text, std::string_view digits) {
  int64_t bytes{};  // stays 0 unless the digits are a number that fits
  const char* end = std::from_chars(digits.begin(), digits.end(), bytes).ptr;
  if (end != digits.end() || bytes <= 0) {
    throw std::invalid_argument("--wrap " + text + ": size: takes a positive number of bytes");
  }
  return bytes;
}

}  // namespace

WrapPolicy wrap_none() {
  return [](Module&) { return std::vector<Module*>(); };
}

WrapPolicy wrap_blocks() {
  todo("wrap_blocks", "7.1");
}

WrapPolicy wrap_by_type(std::string name) {
  todo("wrap_by_type", "7.3");
}

WrapPolicy wrap_by_hand(std::vector<Module*> modules) {
  return [modules](Module&) { return modules; };
}

WrapPolicy wrap_by_size(int64_t bytes) {
  todo("wrap_by_size", "7.3");
}

WrapPolicy parse_wrap_policy(const std::string& text) {
  if (text == "block") return wrap_blocks();
  if (text == "none") return wrap_none();
  if (text.starts_with("type:") && text.size() > 5) return wrap_by_type(text.substr(5));
  if (text.starts_with("size:")) return wrap_by_size(parse_bytes(text, text.substr(5)));
  throw std::invalid_argument("--wrap " + text + ": takes block, none, type:NAME or size:BYTES");
}

}  // namespace fsdp
