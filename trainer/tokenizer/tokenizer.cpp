#include <tokenizer/nfc.h>
#include <tokenizer/tokenizer.h>
#include <tokenizer/tokenizer_file.h>
#include <tokenizer/tokenizer_folder.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace fsdp {
namespace {

// Returns the added tokens of `file` that are searched for in the normalized text or, if
// `normalized_text` is false, those that are searched for in the text before it is normalized. In
// the first case, the contents of the tokens are normalized too.
AddedTokens found_in(const TokenizerFile& file, bool normalized_text) {
  std::vector<AddedToken> tokens;
  for (AddedToken token : file.added_tokens) {
    if (token.normalized != normalized_text) continue;
    if (normalized_text && file.nfc) token.content = nfc(token.content);
    tokens.push_back(std::move(token));
  }
  return AddedTokens(std::move(tokens));
}

}  // namespace

// Encodes words, and stores the ids of short words, because most words occur several times in a
// text.
class Tokenizer::WordEncoder {
 public:
  WordEncoder(const BytePairs& pairs, const Visit& visit) : pairs_(pairs), visit_(visit) {}

  void encode(std::string_view word) {
    constexpr size_t kLongest = 64, kMost = 1 << 16;
    if (const auto known = known_.find(std::string(word)); known != known_.end())
      return visit_(known->second);
    std::vector<int32_t> ids;
    pairs_.encode(word, ids);
    visit_(ids);
    if (word.size() > kLongest) return;
    if (known_.size() == kMost) known_.clear();
    known_.emplace(word, std::move(ids));
  }

 private:
  const BytePairs& pairs_;
  const Visit& visit_;
  std::unordered_map<std::string, std::vector<int32_t>> known_;
};

Tokenizer::Tokenizer(const std::string& path)
    : Tokenizer(read_tokenizer_file(tokenizer_at(path))) {}

Tokenizer::Tokenizer(TokenizerFile file)
    : nfc_(file.nfc),
      pre_tokenizer_(std::move(file.pre_tokenizer)),
      pairs_(std::move(file.vocabulary), file.merges, file.ignore_merges),
      in_text_(found_in(file, false)),
      in_normalized_text_(found_in(file, true)),
      before_(std::move(file.before)),
      after_(std::move(file.after)),
      bytes_of_id_(std::move(file.bytes_of_id)) {
  for (const auto& [id, bytes] : bytes_of_id_)
    size_ = std::max<int64_t>(size_, int64_t{id} + 1);
}

void Tokenizer::encode(std::string_view text, Template special, const Visit& visit) const {
  WordEncoder encoder(pairs_, visit);
  const auto encode_word = [&](std::string_view word) { encoder.encode(word); };
  const auto encode_normalized = [&](std::string_view part, const AddedToken* token) {
    if (token == nullptr) return pre_tokenizer_.split(part, encode_word);
    visit({&token->id, 1});
  };
  if (special == Template::add) visit(before_);
  in_text_.split(text, [&](std::string_view part, const AddedToken* token) {
    if (token != nullptr) return visit({&token->id, 1});
    if (!nfc_) return in_normalized_text_.split(part, encode_normalized);
    in_normalized_text_.split(nfc(part), encode_normalized);
  });
  if (special == Template::add) visit(after_);
}

std::vector<int64_t> Tokenizer::encode(std::string_view text, Template special) const {
  std::vector<int64_t> all;
  encode(text, special,
         [&](std::span<const int32_t> ids) { all.insert(all.end(), ids.begin(), ids.end()); });
  return all;
}

std::string_view Tokenizer::bytes_of(int64_t id) const {
  if (id < 0 || id > std::numeric_limits<int32_t>::max()) return {};
  const auto found = bytes_of_id_.find(static_cast<int32_t>(id));
  return found == bytes_of_id_.end() ? std::string_view() : found->second;
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids) const {
  std::string text;
  for (const int64_t id : ids)
    text += bytes_of(id);
  return text;
}

}  // namespace fsdp
