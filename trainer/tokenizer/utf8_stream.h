#pragma once

#include <string>
#include <string_view>

namespace fsdp {

// Makes valid UTF-8 of bytes that come in pieces: the bytes of a character may be in several
// tokens.
class Utf8Stream {
 public:
  // Returns the characters that are complete after these bytes. U+FFFD replaces bytes that are not
  // valid UTF-8.
  std::string add(std::string_view bytes);
  // Returns U+FFFD if the last character has not become complete; otherwise "".
  std::string end();

 private:
  std::string unfinished_;  // at most 3 bytes
};

}  // namespace fsdp
