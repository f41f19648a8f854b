#include <testing/frames.h>

#include <cstdint>
#include <cstring>

namespace fsdp {
namespace {

using Json = nlohmann::json;

// A CBOR parser that shortens long texts, because comparing and printing a text of 60 MB takes
// minutes. It stops at a value that is nested more than 100 deep.
class Shallow : public nlohmann::detail::json_sax_dom_parser<Json> {
  using Parser = nlohmann::detail::json_sax_dom_parser<Json>;

 public:
  using Parser::Parser;
  // NOLINTBEGIN(bugprone-derived-method-shadowing-base-method): sax_parse() calls these
  bool string(std::string& text) {
    std::string kept = shortened(text);
    return Parser::string(kept);
  }
  bool start_object(size_t size) { return goes_on() && Parser::start_object(size); }
  bool start_array(size_t size) { return goes_on() && Parser::start_array(size); }
  bool end_object() { return --depth_, Parser::end_object(); }
  bool end_array() { return --depth_, Parser::end_array(); }
  // NOLINTEND(bugprone-derived-method-shadowing-base-method)

 private:
  bool goes_on() { return ++depth_ <= 100; }

  int depth_{};
};

}  // namespace

std::string shortened(std::string_view text) {
  constexpr size_t kMost = 64 << 10;  // the most bytes of a text that shortened() returns
  if (text.size() <= kMost) return std::string(text);
  const std::string end = "\n... (of " + std::to_string(text.size()) + " bytes)";
  // The result has at most kMost bytes, so shortened() returns it unchanged if it is called again.
  return std::string(text.substr(0, kMost - end.size())) + end;
}

Json from_frame(std::string_view bytes) {
  Json value;
  Shallow parser(value);
  if (Json::sax_parse(bytes.begin(), bytes.end(), &parser, Json::input_format_t::cbor))
    return value;
  throw Json::parse_error::create(110, bytes.size(), "it is too deep", nullptr);
}

std::string to_frame(const nlohmann::json& value) {
  std::string bytes(sizeof(uint64_t), '\0');
  nlohmann::json::to_cbor(value, bytes);
  const uint64_t length = bytes.size() - sizeof length;
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes;
}

}  // namespace fsdp
