#pragma once

#include <tokenizer/added_tokens.h>
#include <tokenizer/byte_pairs.h>
#include <tokenizer/pre_tokenizer.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace fsdp {

// The content of a tokenizer.json, as the package tokenizers and save_pretrained() of transformers
// write it.
struct TokenizerFile {
  std::unordered_map<std::string, int32_t> vocabulary{};  // the bytes of each token -> its id
  // Maps the id of each token, added tokens included, to the bytes of the token.
  std::unordered_map<int32_t, std::string> bytes_of_id{};
  std::vector<BytePairs::Merge> merges{};  // the merge that encode() tries first comes first
  bool ignore_merges;                      // true: a word that is a token needs no merges
  bool nfc;                                // true: encode() normalizes the text to NFC
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added_tokens{};
  // The ids that the post_processor adds before and after a text.
  std::vector<int32_t> before{}, after{};
};

// Reads and checks the tokenizer.json `path`.
// - The tokenizer must be byte-level BPE: a model of the type BPE without unknown tokens, prefixes
//   and suffixes, and a pre_tokenizer and a decoder of the type ByteLevel.
// - The normalizer may be missing or NFC. The post_processor may be missing, ByteLevel or
//   TemplateProcessing.
// - `truncation` and `padding` are ignored, as transformers ignores them unless its caller asks for
//   them.
// Throws: std::runtime_error "PATH: KEY: what is wrong".
TokenizerFile read_tokenizer_file(const std::string& path);

}  // namespace fsdp
