#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

// A token that is found in the text before the text is split into words, such as <|endoftext|>. It
// is an entry of added_tokens in tokenizer.json.
struct AddedToken {
  std::string content{};
  int32_t id{};
  bool single_word{};       // found only if no character of \w is beside it
  bool lstrip{}, rstrip{};  // takes the spaces before it, or after it
  bool normalized{};        // found in the normalized text
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // Tokens without content are never found.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // Calls `visit` with each part of the text, in its order: a token that is found, with its spaces,
  // or the text before, between and after tokens, with null. At each place the longest token is
  // found.
  using Visit = std::function<void(std::string_view part, const AddedToken* token)>;
  void split(std::string_view text, const Visit& visit) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t at) const;

  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // the longest ones first
};

}  // namespace fsdp
