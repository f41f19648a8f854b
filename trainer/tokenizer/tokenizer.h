#pragma once

#include <tokenizer/added_tokens.h>
#include <tokenizer/byte_pairs.h>
#include <tokenizer/pre_tokenizer.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fsdp {

struct TokenizerFile;

// The byte-level BPE tokenizer of a tokenizer.json: encodes a text as token ids, and decodes token
// ids to a text. The ids are those of the Python package tokenizers, with two exceptions:
// - Bytes that are not valid UTF-8 are tokens too, and decode() returns them.
// - NFC orders and composes all marks of Unicode 16; the package tokenizers 0.23 knows only those
//   of Unicode 10.
class Tokenizer {
 public:
  // `path`: a tokenizer.json, or a folder that has one. Throws std::runtime_error, which names the
  // file and the key, if the file can't be read or is not a byte-level BPE tokenizer.
  explicit Tokenizer(const std::string& path);

  enum class Template {
    // Adds the special tokens that the post_processor puts before and after a text, as transformers
    // does.
    add,
    leave_out
  };
  // Calls `visit` with the token ids of the text, a few at a time, in the order of the text. If the
  // text has the content of an added token, its id is that of the added token. Throws
  // std::runtime_error if the text has a byte for which there is no token.
  using Visit = std::function<void(std::span<const int32_t> ids)>;
  void encode(std::string_view text, Template special, const Visit& visit) const;
  std::vector<int64_t> encode(std::string_view text, Template special = Template::add) const;

  // Returns the bytes of the token with this id; no bytes if no token has the id.
  std::string_view bytes_of(int64_t id) const;
  std::string decode(const std::vector<int64_t>& ids) const;

  int64_t size() const { return size_; }  // the largest token id, plus 1

 private:
  explicit Tokenizer(TokenizerFile file);
  class WordEncoder;

  bool nfc_;
  PreTokenizer pre_tokenizer_;
  BytePairs pairs_;
  AddedTokens in_text_, in_normalized_text_;
  std::vector<int32_t> before_, after_;
  std::unordered_map<int32_t, std::string> bytes_of_id_;
  int64_t size_{};
};

}  // namespace fsdp
