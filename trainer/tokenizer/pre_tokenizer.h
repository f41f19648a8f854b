#pragma once

#include <tokenizer/json_value.h>
#include <tokenizer/word_scanner.h>

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace fsdp {

// The pre_tokenizer of a tokenizer.json: splits a text into the words in which tokens are merged.
class PreTokenizer {
 public:
  // Reads a pre_tokenizer of the type ByteLevel, or of the type Sequence: any number of Split and
  // Digits and, at the end, ByteLevel. Throws std::runtime_error, which names the key, for another
  // one.
  explicit PreTokenizer(const JsonValue& json);

  // Calls `visit` with each word. The words are the text, in its order, and with add_prefix_space
  // also a space before each part that does not begin with one.
  using Visit = std::function<void(std::string_view word)>;
  void split(std::string_view text, const Visit& visit) const { split_from(0, text, visit); }

 private:
  // A step splits each part that the step before it has made.
  struct Step {
    bool adds_prefix_space;
    std::optional<WordScanner> scanner;  // no value: does not split
  };
  void add(const JsonValue& json, bool last);
  void add_byte_level(const JsonValue& json);
  void add_split(const JsonValue& json);
  void split_from(size_t step, std::string_view text, const Visit& visit) const;

  std::vector<Step> steps_;
};

}  // namespace fsdp
