#pragma once

#include <tokenizer/byte_letters.h>
#include <tokenizer/tokenizer.h>
#include <tokenizer/utf8.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include <common/temporary_folder.h>

namespace fsdp {

// Returns the letters that stand for these bytes in a tokenizer.json.
inline std::string letters_of(const std::string& bytes) {
  std::string letters;
  for (const char byte : bytes)
    append_utf8(letters, letter_of_byte(static_cast<unsigned char>(byte)));
  return letters;
}

// Returns the text of a tokenizer.json with GPT-2's pattern. The token of a single byte has the
// value of the byte as its id. Each entry of `merges` is a pair of tokens, given as bytes, in the
// order of priority. If the merged token is new, its id is 256 plus the index of the merge.
inline nlohmann::json tokenizer_json(
    const std::vector<std::pair<std::string, std::string>>& merges = {}) {
  nlohmann::json vocabulary, list = nlohmann::json::array();
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[letters_of({static_cast<char>(byte)})] = byte;
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string left = letters_of(merges[i].first), right = letters_of(merges[i].second);
    if (!vocabulary.contains(left + right)) vocabulary[left + right] = 256 + i;
    list.push_back({left, right});
  }
  return {{"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", list}}}};
}

inline Tokenizer tokenizer_of(const nlohmann::json& json) {
  const TemporaryFolder folder;
  return Tokenizer(folder.write("tokenizer.json", json.dump()));
}

inline nlohmann::json added_token(int id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

}  // namespace fsdp
