#include <tokenizer/added_tokens.h>
#include <tokenizer/unicode_classes.h>
#include <tokenizer/utf8.h>

#include <algorithm>
#include <utility>

namespace fsdp {
namespace {

size_t before_spaces(std::string_view text, size_t end) {
  while (end > 0) {
    const size_t start = start_of_last(text, end);
    if (!is_space(code_point_at(text, start).value)) break;
    end = start;
  }
  return end;
}

size_t after_spaces(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const CodePoint point = code_point_at(text, begin);
    if (!is_space(point.value)) break;
    begin += point.bytes;
  }
  return begin;
}

bool is_apart(std::string_view text, size_t begin, size_t end) {
  const bool left =
      begin > 0 && is_in_a_word(code_point_at(text, start_of_last(text, begin)).value);
  const bool right = end < text.size() && is_in_a_word(code_point_at(text, end).value);
  return !left && !right;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) {
  for (AddedToken& token : tokens)
    if (!token.content.empty())
      by_first_byte_[static_cast<unsigned char>(token.content.front())].push_back(std::move(token));
  for (auto& some : by_first_byte_)
    std::ranges::stable_sort(some, std::greater<>(),
                             [](const AddedToken& token) { return token.content.size(); });
}

const AddedToken* AddedTokens::longest_at(std::string_view text, size_t at) const {
  for (const AddedToken& token : by_first_byte_[static_cast<unsigned char>(text[at])])
    if (text.substr(at).starts_with(token.content)) return &token;
  return nullptr;
}

void AddedTokens::split(std::string_view text, const Visit& visit) const {
  size_t done = 0;  // `visit` has been called with all text before this offset
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token = longest_at(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->single_word && !is_apart(text, begin, end)) continue;
    if (token->lstrip) begin = before_spaces(text, begin);
    begin = std::max(begin, done);  // the previous token may have taken the spaces before this one
    if (token->rstrip) end = after_spaces(text, end);
    if (begin > done) visit(text.substr(done, begin - done), nullptr);
    visit(text.substr(begin, end - begin), token);
    done = end;
  }
  if (done < text.size()) visit(text.substr(done), nullptr);
}

}  // namespace fsdp
