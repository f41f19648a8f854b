#pragma once

#include <string>
#include <string_view>

namespace fsdp {

// Converts bytes that arrive in pieces to valid UTF-8. The pieces are the bytes of tokens, and one
// character may have its bytes in several tokens.
class Utf8Stream {
 public:
  // Adds `bytes`, and returns the characters that are now complete and were not yet returned.
  // U+FFFD replaces bytes that are not valid UTF-8.
  std::string add(std::string_view bytes);
  // Call it after the last bytes. Returns U+FFFD if the last character is not complete; otherwise
  // "".
  std::string end();

 private:
  std::string unfinished_;  // at most 3 bytes of a character that is not complete
};

}  // namespace fsdp
