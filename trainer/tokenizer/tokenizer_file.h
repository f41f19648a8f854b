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
  std::unordered_map<std::string, int32_t> vocabulary{};   // bytes of a token -> its id
  std::unordered_map<int32_t, std::string> bytes_of_id{};  // with the added tokens
  std::vector<BytePairs::Merge> merges{};                  // the best one first
  bool ignore_merges;                                      // a word that is a token is not merged
  bool nfc;                                                // normalizes the text
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added_tokens{};
  std::vector<int32_t> before{}, after{};  // ids that the post_processor puts around a text
};

// Reads and checks the file.
// - The tokenizer must be byte-level BPE: a model of the type BPE without unknown tokens, prefixes
//   and suffixes, and a pre_tokenizer and a decoder of the type ByteLevel.
// - The normalizer may be NFC, the post_processor TemplateProcessing.
// - `truncation` and `padding` are ignored, as transformers does unless its caller asks for them.
// Throws: std::runtime_error "PATH: KEY: what is wrong".
TokenizerFile read_tokenizer_file(const std::string& path);

}  // namespace fsdp
