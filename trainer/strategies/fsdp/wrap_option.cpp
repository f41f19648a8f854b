#include <strategies/fsdp/wrap_auto.h>
#include <strategies/fsdp/wrap_option.h>
#include <wrap_by_size.h>

#include <charconv>
#include <cstdint>
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

WrapPolicy wrap_policy_of(const std::string& text) {
  if (text == "auto") return wrap_auto();
  if (text == "block") return wrap_blocks();
  if (text == "none") return wrap_none();
  if (text.starts_with("type:") && text.size() > 5) return wrap_by_type(text.substr(5));
  if (text.starts_with("size:")) return wrap_by_size(parse_bytes(text, text.substr(5)));
  throw std::invalid_argument("--wrap " + text +
                              ": takes auto, block, none, type:NAME or size:BYTES");
}

}  // namespace fsdp
