#include <base/text.h>
#include <plan/memory_bar.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace fsdp {
namespace {

constexpr int64_t kLetters = 80;

char letter_of(MemoryClass cls) {
  switch (cls) {
    case MemoryClass::gradients:
      return 'd';  // not 'g', because 'g' is the letter of MemoryClass::gathered
    case MemoryClass::sharded_gradients:
      return 'r';  // 'r' as in "reduced", because 's' is the letter of MemoryClass::shards
    default:
      return name_of(cls)[0];
  }
}

}  // namespace

const char* name_of(MemoryClass cls) {
  return cls == MemoryClass::other ? "activations" : to_string(cls);
}

std::string bytes_text(int64_t bytes) {
  const bool giga = bytes >= 1'000'000'000;
  char text[40];
  std::snprintf(text, sizeof text, "%.3f %s", static_cast<double>(bytes) / (giga ? 1e9 : 1e6),
                giga ? "GB" : "MB");
  return text;
}

std::string memory_bar(const LiveBytes& bytes, std::optional<int64_t> memory) {
  const int64_t whole = std::max({bytes.total, memory.value_or(0), int64_t{1}});
  const auto letters = [&](int64_t up_to) {
    return static_cast<size_t>(
        std::llround(static_cast<double>(up_to) / static_cast<double>(whole) * double{kLetters}));
  };
  std::string bar, legend;
  int64_t before = 0;
  for (size_t cls = 0; cls < kMemoryClasses; ++cls) {
    before += bytes.by_class[cls];
    const size_t end = letters(before);
    if (end == bar.size()) continue;  // this memory class has too few bytes for a letter in the bar
    const auto memory_class = static_cast<MemoryClass>(cls);
    bar.resize(end, letter_of(memory_class));
    legend += std::string(1, letter_of(memory_class)) + ' ' + name_of(memory_class) + ", ";
  }
  if (bar.size() < kLetters) legend += ". free, ";
  bar.resize(kLetters, '.');
  if (memory && bytes.total > *memory) {
    bar.insert(letters(*memory), "|");
    legend += "| the end of " + bytes_text(*memory) + ", ";
  }
  return "  [" + bar + "] " + bytes_text(whole) + '\n' +
         wrap("   " + legend + bytes_text(whole / kLetters) + " each\n", 100, 3);
}

}  // namespace fsdp
