#include <tokenizer/nfc.h>
#include <tokenizer/unicode_tables.h>
#include <tokenizer/utf8.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

// Unicode's numbers of the syllables of Hangul. A syllable has a leading consonant, a vowel and
// possibly a trailing consonant. kTrailing is the number before that of the first trailing
// consonant, and stands for none.
constexpr char32_t kSyllables = 0xAC00, kLeading = 0x1100, kVowels = 0x1161, kTrailing = 0x11A7;
constexpr char32_t kLeadingCount = 19, kVowelCount = 21, kTrailingCount = 28;
constexpr char32_t kSyllableCount = kLeadingCount * kVowelCount * kTrailingCount;

// No code point below U+0300 has a combining class above 0, or is composed with an earlier code
// point.
constexpr char32_t kFirstMark = 0x300;

// A code point of a text, or bytes that are not valid UTF-8, which nfc() copies unchanged.
struct Character {
  char32_t value;
  int combining;
  std::string_view bytes;  // the invalid bytes, if `value` is kInvalid; otherwise empty
};
using Characters = std::vector<Character>;

int combining_class(char32_t value) {
  const auto table = unicode::kCombiningClasses;
  const auto first = [](const unicode::CombiningClass& entry) { return entry.range.first; };
  const auto after = std::ranges::upper_bound(table, value, {}, first);
  if (after == table.begin() || value > std::prev(after)->range.last) return 0;
  return std::prev(after)->value;
}

void decompose(char32_t value, Characters& into) {
  if (value >= kSyllables && value < kSyllables + kSyllableCount) {
    const char32_t index = value - kSyllables, trailing = index % kTrailingCount;
    into.push_back({kLeading + index / (kVowelCount * kTrailingCount), 0, {}});
    into.push_back({kVowels + index / kTrailingCount % kVowelCount, 0, {}});
    if (trailing > 0) into.push_back({kTrailing + trailing, 0, {}});
    return;
  }
  const auto table = unicode::kDecompositions;
  const auto entry = std::ranges::lower_bound(table, value, {}, &unicode::Decomposition::whole);
  if (entry == table.end() || entry->whole != value) {
    into.push_back({value, combining_class(value), {}});
    return;
  }
  decompose(entry->first, into);
  if (entry->second != 0) decompose(entry->second, into);
}

using Pairs = std::map<std::pair<char32_t, char32_t>, char32_t>;

Pairs composed_pairs() {
  Pairs pairs;
  for (const auto& [whole, first, second] : unicode::kDecompositions)
    if (second != 0 && !std::ranges::binary_search(unicode::kNotComposed, whole))
      pairs[{first, second}] = whole;
  return pairs;
}

// Returns the code point into which NFC composes `first` and `second`, or 0 if it does not compose
// them.
char32_t composition(char32_t first, char32_t second) {
  if (first - kLeading < kLeadingCount && second - kVowels < kVowelCount)
    return kSyllables + ((first - kLeading) * kVowelCount + second - kVowels) * kTrailingCount;
  const bool open =
      first - kSyllables < kSyllableCount && (first - kSyllables) % kTrailingCount == 0;
  if (open && second > kTrailing && second - kTrailing < kTrailingCount)
    return first + second - kTrailing;
  static const Pairs pairs = composed_pairs();
  const auto found = pairs.find({first, second});
  return found == pairs.end() ? 0 : found->second;
}

// Sorts each run of marks (code points with a combining class above 0) by combining class. Marks of
// one class keep their order.
void sort_marks(Characters& characters) {
  const auto is_mark = [](const Character& character) { return character.combining > 0; };
  for (auto begin = characters.begin(); begin != characters.end();) {
    begin = std::find_if(begin, characters.end(), is_mark);
    const auto end = std::find_if_not(begin, characters.end(), is_mark);
    std::stable_sort(begin, end, [](const Character& one, const Character& other) {
      return one.combining < other.combining;
    });
    begin = end;
  }
}

// Composes each code point with the last code point of combining class 0 before it, unless a code
// point between the two has the same or a higher class than the later one.
Characters composed(const Characters& characters) {
  Characters result;
  // 1 + index in `result` of the last code point of combining class 0; 0 if there is none.
  size_t starter = 0;
  for (const Character& next : characters) {
    const int between = result.size() > starter ? result.back().combining : -1;
    if (starter > 0 && between < next.combining) {
      const char32_t whole = composition(result[starter - 1].value, next.value);
      if (whole != 0) {
        result[starter - 1].value = whole;
        continue;
      }
    }
    result.push_back(next);
    if (next.combining == 0) starter = result.size();
  }
  return result;
}

void append_normalized(std::string_view text, std::string& into) {
  Characters characters;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (point.value == kInvalid)
      characters.push_back({kInvalid, 0, text.substr(at, point.bytes)});
    else
      decompose(point.value, characters);
    at += point.bytes;
  }
  sort_marks(characters);
  for (const Character& character : composed(characters)) {
    if (character.value == kInvalid)
      into += character.bytes;
    else
      append_utf8(into, character.value);
  }
}

}  // namespace

std::string nfc(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    // Normalizes the text part by part. A part ends before a code point below kFirstMark, because
    // such a code point does not change the text before it.
    size_t count = 0;
    char32_t first = 0;
    do {
      const CodePoint point = code_point_at(text, end);
      if (count++ == 0) first = point.value;
      end += point.bytes;
    } while (end < text.size() && code_point_at(text, end).value >= kFirstMark);
    const std::string_view part = text.substr(begin, end - begin);
    if (count == 1 && first < kFirstMark)
      result += part;
    else
      append_normalized(part, result);
  }
  return result;
}

}  // namespace fsdp
