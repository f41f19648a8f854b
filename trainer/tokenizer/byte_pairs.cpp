#include <tokenizer/byte_pairs.h>

#include <queue>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

constexpr size_t kNone = static_cast<size_t>(-1);

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

// A token of a word, in a doubly linked list of all tokens of the word.
struct BytePairs::Part {
  int32_t id;  // token id; -1: the token was merged into the one before it
  size_t before, after;
};

// A pair of neighbouring tokens that a merge can replace by one token.
struct BytePairs::Candidate {
  size_t rank, left;  // rank of the merge in the list of merges, index of the pair's left token
  int32_t whole;

  // std::priority_queue returns the largest element first. So the pair with the lowest rank and, of
  // equal ranks, the leftmost one counts as the largest.
  bool operator<(const Candidate& other) const {
    return std::pair(other.rank, other.left) < std::pair(rank, left);
  }
};

BytePairs::BytePairs(std::unordered_map<std::string, int32_t> vocabulary,
                     const std::vector<Merge>& merges, bool whole_words)
    : vocabulary_(std::move(vocabulary)), whole_words_(whole_words) {
  merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank)
    merges_.insert_or_assign(key_of(merges[rank].left, merges[rank].right),
                             Ranked{rank, merges[rank].whole});
}

const BytePairs::Ranked* BytePairs::merge_of(int32_t left, int32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::vector<BytePairs::Part> BytePairs::bytes_of(std::string_view word) const {
  std::vector<Part> parts;
  parts.reserve(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    const auto token = vocabulary_.find(std::string(1, word[i]));
    if (token == vocabulary_.end())
      throw std::runtime_error("the text has the byte " +
                               std::to_string(static_cast<unsigned char>(word[i])) +
                               ", for which the tokenizer has no token");
    parts.push_back({token->second, i == 0 ? kNone : i - 1, i + 1 < word.size() ? i + 1 : kNone});
  }
  return parts;
}

void BytePairs::merge(std::vector<Part>& parts) const {
  std::priority_queue<Candidate> candidates;
  const auto offer = [&](size_t left) {
    if (left == kNone || parts[left].after == kNone) return;
    const Ranked* found = merge_of(parts[left].id, parts[parts[left].after].id);
    if (found != nullptr) candidates.push({found->rank, left, found->whole});
  };
  for (size_t i = 0; i < parts.size(); ++i)
    offer(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Part& left = parts[best.left];
    if (left.id < 0 || left.after == kNone) continue;
    Part& right = parts[left.after];
    // Skips the candidate if another merge has changed the pair since the candidate was put into
    // the queue.
    const Ranked* now = merge_of(left.id, right.id);
    if (now == nullptr || now->rank != best.rank) continue;
    left.id = best.whole;
    right.id = -1;
    left.after = right.after;
    if (left.after != kNone) parts[left.after].before = best.left;
    offer(best.left);
    offer(left.before);
  }
}

void BytePairs::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (whole_words_) {
    const auto token = vocabulary_.find(std::string(word));
    if (token != vocabulary_.end()) return ids.push_back(token->second);
  }
  std::vector<Part> parts = bytes_of(word);
  merge(parts);
  for (const Part& part : parts)
    if (part.id >= 0) ids.push_back(part.id);
}

}  // namespace fsdp
