#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fsdp {

// Byte-pair encoding. At first a word has one token for each byte. Then one pair of neighbouring
// tokens after another is merged into one token: always the pair that comes first in the list of
// merges. If this pair occurs several times in the word, the leftmost one is merged first.
class BytePairs {
 public:
  struct Merge {
    int32_t left, right, whole;  // ids of the pair's tokens and of the merged token
  };

  // `vocabulary`: the bytes of each token -> its id. `merges`: the merge that is done first comes
  // first; if a pair is in the list twice, its last place counts. `whole_words`: a word that is
  // itself a token becomes this token without merges.
  BytePairs(std::unordered_map<std::string, int32_t> vocabulary, const std::vector<Merge>& merges,
            bool whole_words);

  // Appends the ids of the tokens of `word` to `ids`. Throws std::runtime_error if a byte of `word`
  // has no token.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Part;
  struct Candidate;
  struct Ranked {
    size_t rank;
    int32_t whole;
  };
  const Ranked* merge_of(int32_t left, int32_t right) const;
  std::vector<Part> bytes_of(std::string_view word) const;
  void merge(std::vector<Part>& parts) const;

  std::unordered_map<std::string, int32_t> vocabulary_;
  // Ids of a pair's left and right token, as one number -> the merge of the pair.
  std::unordered_map<uint64_t, Ranked> merges_;
  bool whole_words_;
};

}  // namespace fsdp
