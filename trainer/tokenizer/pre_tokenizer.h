#pragma once

#include <tokenizer/json_value.h>
#include <tokenizer/word_scanner.h>

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace fsdp {

// The pre_tokenizer of a tokenizer.json. It splits a text into words; the tokenizer merges bytes
// into tokens only within a word.
class PreTokenizer {
 public:
  // Reads a pre_tokenizer of the type ByteLevel, or one of the type Sequence that has any number of
  // Split and Digits and, at its end, one ByteLevel. Throws std::runtime_error, which names the
  // key, if `json` is any other pre_tokenizer.
  explicit PreTokenizer(const JsonValue& json);

  // Calls `visit` with each word, in the order of the text. Together the words are the text. With
  // add_prefix_space, a space is added before each part that does not begin with a space.
  using Visit = std::function<void(std::string_view word)>;
  void split(std::string_view text, const Visit& visit) const { split_from(0, text, visit); }

 private:
  // A step of a Sequence splits each part that the previous step has made.
  struct Step {
    bool adds_prefix_space;
    std::optional<WordScanner> scanner;  // splits each part; no value: the step splits no part
  };
  void add(const JsonValue& json, bool last);
  void add_byte_level(const JsonValue& json);
  void add_split(const JsonValue& json);
  void split_from(size_t step, std::string_view text, const Visit& visit) const;

  std::vector<Step> steps_;
};

}  // namespace fsdp
