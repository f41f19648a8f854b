#include <base/text.h>
#include <tokenizer/unicode_classes.h>
#include <tokenizer/utf8.h>
#include <tokenizer/word_scanner.h>

#include <array>
#include <stdexcept>

namespace fsdp {
namespace {

using Class = bool(char32_t value);

bool is_other(char32_t value) {  // the class [^\s\p{L}\p{N}]
  return !is_space(value) && !is_letter(value) && !is_number(value);
}

// The class [^\r\n\p{L}\p{N}].
bool is_prefix(char32_t value) {
  return !is_line_break(value) && !is_letter(value) && !is_number(value);
}

// Returns the end of the longest run, from `begin` on, of at most `most` code points of the class
// IsIn.
template <Class* IsIn>
size_t run_end(std::string_view text, size_t begin, size_t most = std::string_view::npos) {
  while (begin < text.size() && most-- > 0) {
    const CodePoint point = code_point_at(text, begin);
    if (!IsIn(point.value)) break;
    begin += point.bytes;
  }
  return begin;
}

size_t after_space(std::string_view text, size_t begin) {
  return begin + (begin < text.size() && text[begin] == ' ' ? 1 : 0);
}

// Each of the following functions matches an alternative of the patterns (see kAlternatives) at the
// offset `begin` of `text`. It returns the end of the match, or `begin` if there is no match.

template <Class* IsIn>
size_t one_or_more(std::string_view text, size_t begin) {
  return run_end<IsIn>(text, begin);
}

template <Class* IsIn>
size_t space_and_run(std::string_view text, size_t begin) {
  const size_t first = after_space(text, begin), end = run_end<IsIn>(text, first);
  return end > first ? end : begin;
}

template <size_t Most>
size_t numbers(std::string_view text, size_t begin) {
  return run_end<is_number>(text, begin, Most);
}

size_t letters_after_prefix(std::string_view text, size_t begin) {
  const size_t first = run_end<is_prefix>(text, begin, 1), end = run_end<is_letter>(text, first);
  return end > first ? end : begin;
}

size_t others_and_line_breaks(std::string_view text, size_t begin) {
  const size_t end = space_and_run<is_other>(text, begin);
  return end > begin ? run_end<is_line_break>(text, end) : begin;
}

// Matches the spaces from `begin` up to and including the last line break among them. Matches
// nothing if the spaces have no line break.
size_t spaces_to_line_break(std::string_view text, size_t begin) {
  size_t end = begin;
  for (size_t at = begin; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (!is_space(point.value)) break;
    at += point.bytes;
    if (is_line_break(point.value)) end = at;
  }
  return end;
}

// Matches the alternative \s+(?!\S): all spaces from `begin` on if the text ends after them,
// otherwise all but the last one.
size_t spaces_before_space(std::string_view text, size_t begin) {
  const size_t end = run_end<is_space>(text, begin);
  return end == text.size() || end == begin ? end : start_of_last(text, end);
}

// Returns `value` in lower case if it is a letter of ASCII. The long s, U+017F, becomes an s, as
// Unicode's case folding requires. Any other code point stays unchanged.
char32_t folded(char32_t value) {
  if (value == 0x17F) return 's';
  return value >= 'A' && value <= 'Z' ? value + ('a' - 'A') : value;
}

template <bool Folds>
size_t match_letters(std::string_view text, size_t begin, std::string_view letters) {
  size_t at = begin;
  for (const char letter : letters) {
    if (at == text.size()) return begin;
    const CodePoint point = code_point_at(text, at);
    if ((Folds ? folded(point.value) : point.value) != static_cast<char32_t>(letter)) return begin;
    at += point.bytes;
  }
  return at;
}

template <bool Folds>
size_t contraction(std::string_view text, size_t begin) {
  for (const char* letters : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (const size_t end = match_letters<Folds>(text, begin, letters); end > begin) return end;
  return begin;
}

struct Alternative {
  std::string_view text;
  WordScanner::Match* match;
};
constexpr std::array kAlternatives{
    Alternative{"'s|'t|'re|'ve|'m|'ll|'d", contraction<false>},
    Alternative{"(?i:'s|'t|'re|'ve|'m|'ll|'d)", contraction<true>},
    Alternative{R"( ?\p{L}+)", space_and_run<is_letter>},
    Alternative{R"( ?\p{N}+)", space_and_run<is_number>},
    Alternative{R"( ?[^\s\p{L}\p{N}]+)", space_and_run<is_other>},
    Alternative{R"( ?[^\s\p{L}\p{N}]+[\r\n]*)", others_and_line_breaks},
    Alternative{R"([^\r\n\p{L}\p{N}]?\p{L}+)", letters_after_prefix},
    Alternative{R"(\p{L}+)", one_or_more<is_letter>},
    Alternative{R"(\p{N})", numbers<1>},
    Alternative{R"(\p{N}{1,3})", numbers<3>},
    Alternative{R"(\p{N}+)", one_or_more<is_number>},
    Alternative{R"(\s*[\r\n]+)", spaces_to_line_break},
    Alternative{R"(\s*[\r\n])", spaces_to_line_break},
    Alternative{R"(\s+(?!\S))", spaces_before_space},
    Alternative{R"(\s+)", one_or_more<is_space>},
};

// Returns the alternative at the beginning of `pattern`, which must be followed by a "|" or by the
// end of `pattern`; null if there is none.
const Alternative* first_alternative(std::string_view pattern) {
  for (const Alternative& alternative : kAlternatives) {
    if (!pattern.starts_with(alternative.text)) continue;
    const std::string_view rest = pattern.substr(alternative.text.size());
    if (rest.empty() || rest.front() == '|') return &alternative;
  }
  return nullptr;
}

}  // namespace

const std::string kGPT2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

WordScanner::WordScanner(const std::string& pattern) {
  for (size_t begin = 0; begin <= pattern.size();) {
    const std::string_view rest = std::string_view(pattern).substr(begin);
    const Alternative* alternative = first_alternative(rest);
    if (alternative == nullptr)
      throw std::runtime_error("begins at \"" + one_line(std::string(rest.substr(0, 60))) +
                               "\" with an alternative that is not known");
    alternatives_.push_back(alternative->match);
    begin += alternative->text.size() + 1;
  }
}

size_t WordScanner::end_of_match(std::string_view text, size_t begin) const {
  for (Match* match : alternatives_)
    if (const size_t end = match(text, begin); end > begin) return end;
  return begin;
}

size_t WordScanner::end_of_word(std::string_view text, size_t begin) const {
  if (const size_t end = end_of_match(text, begin); end > begin) return end;
  size_t end = begin;
  do
    end += code_point_at(text, end).bytes;
  while (end < text.size() && end_of_match(text, end) == end);
  return end;
}

}  // namespace fsdp
