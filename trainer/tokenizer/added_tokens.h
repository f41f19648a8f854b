#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

// A token such as <|endoftext|>, which is searched for in the text before the text is split into
// words. It is an entry of added_tokens in tokenizer.json.
struct AddedToken {
  std::string content{};
  int32_t id{};
  bool single_word{};  // true: found only if no word character (\w) is next to it
  // Says whether the token takes the spaces before it (lstrip), and those after it (rstrip).
  bool lstrip{}, rstrip{};
  bool normalized{};  // true: searched for in the normalized text, not in the original one
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // The constructor drops tokens with empty content, so such a token is never found in a text.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // Cuts the text into added tokens and the text before, between and after them, and calls `visit`
  // with each part, in order. `token` is null for a part that is not an added token. The part of an
  // added token includes the spaces that the token takes. If several tokens match at one place, the
  // longest one is found.
  using Visit = std::function<void(std::string_view part, const AddedToken* token)>;
  void split(std::string_view text, const Visit& visit) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t at) const;

  // For each byte: the tokens whose content begins with this byte, the longest token first.
  std::array<std::vector<AddedToken>, 256> by_first_byte_;
};

}  // namespace fsdp
