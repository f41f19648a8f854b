#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fsdp {

// Byte-pair encoding. A word begins as one token for each byte. Then, again and again, the pair of
// neighbours that is the first of all in the list of merges becomes one token. Of equal pairs, the
// leftmost one is merged first.
class BytePairs {
 public:
  struct Merge {
    int32_t left, right, whole;  // token ids
  };

  // `vocabulary`: the bytes of each token -> its id. `merges`: the best one comes first; if a pair
  // is there twice, the last one counts. With `whole_words`, a word that is itself a token becomes
  // this token without merges.
  BytePairs(std::unordered_map<std::string, int32_t> vocabulary, const std::vector<Merge>& merges,
            bool whole_words);

  // Appends the tokens of the word to `ids`. Throws std::runtime_error if a byte has no token.
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
  std::unordered_map<uint64_t, Ranked> merges_;  // by the ids of left and right
  bool whole_words_;
};

}  // namespace fsdp
