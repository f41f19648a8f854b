#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

// Splits a text into words as the regular expression of a tokenizer.json does. Each match is a
// word, and so is each piece of text between two matches.
class WordScanner {
 public:
  // `pattern`: alternatives, such as "\p{N}|\s+", of which the first one that matches counts.
  // Throws std::runtime_error, which quotes the alternative, unless each alternative is one that
  // the tokenizers of GPT-2, Llama 3 and Qwen use.
  explicit WordScanner(const std::string& pattern);

  // Returns the end of the word that begins at `begin`, which must be less than text.size().
  size_t end_of_word(std::string_view text, size_t begin) const;

  // Type of a function that matches one alternative at `begin`. It returns the end of the match, or
  // `begin` if there is no match.
  using Match = size_t(std::string_view text, size_t begin);

 private:
  size_t end_of_match(std::string_view text, size_t begin) const;

  std::vector<Match*> alternatives_;
};

// The pattern of GPT-2, with which a pre_tokenizer of the type ByteLevel splits.
extern const std::string kGPT2Pattern;

}  // namespace fsdp
