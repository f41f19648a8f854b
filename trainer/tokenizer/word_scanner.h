#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

// Splits a text into words as the regular expression of a tokenizer.json does: each match is a
// word, and so is each text between two matches.
class WordScanner {
 public:
  // `pattern`: alternatives of which the first one that matches counts, such as "\p{N}|\s+". Throws
  // std::runtime_error, which quotes the alternative, unless each of them is one of those that the
  // tokenizers of GPT-2, Llama 3 and Qwen use.
  explicit WordScanner(const std::string& pattern);

  // Returns the end of the word that begins at `begin`, which must be less than text.size().
  size_t end_of_word(std::string_view text, size_t begin) const;

  // Returns the end of a match that begins at `begin`; `begin` if there is none.
  using Match = size_t(std::string_view text, size_t begin);

 private:
  size_t end_of_match(std::string_view text, size_t begin) const;

  std::vector<Match*> alternatives_;
};

// The pattern of GPT-2, which a pre_tokenizer of the type ByteLevel has.
extern const std::string kGPT2Pattern;

}  // namespace fsdp
