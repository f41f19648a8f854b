#include <why/skipped_code.h>

#include <algorithm>
#include <fstream>
#include <optional>

namespace fsdp {
namespace {

struct LineRun {
  CodeLine code;
  uint64_t number{};  // number of the action with which the line ran last; 0: it never ran
};
using LineRuns = std::map<int, LineRun>;  // key: number of the line in its file

std::vector<std::string> text_of(const std::string& file) {
  std::ifstream stream(file);
  std::vector<std::string> lines{""};  // element 0 is unused: the first line has the number 1
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line.substr(0, line.find("//")));
  return lines;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

size_t indentation(const std::string& text) {
  return std::min(text.find_first_not_of(' '), text.size());
}

// Returns the number of the last line of the block that begins at line `first`: all lines after it
// that are indented at least as far.
int end_of_block(const std::vector<std::string>& text, int first) {
  int last = first;
  for (size_t i = static_cast<size_t>(first) + 1; i < text.size(); ++i) {
    if (text[i].find_first_not_of(' ') == std::string::npos) continue;
    if (indentation(text[i]) < indentation(text[first])) break;
    last = static_cast<int>(i);
  }
  return last;
}

// Returns the code from `line` on if it never ran because `decides`, the line before it, is a
// condition, a loop or a jump that passed over it; otherwise nothing.
std::optional<SkippedCode> skipped_after(const std::vector<std::string>& text, const LineRuns& runs,
                                         const LineRun& decides, int line) {
  using Kind = SkippedCode::Kind;
  const std::string& condition = text[decides.code.line];
  const bool jumps =
      has(condition, "continue;") || has(condition, "return") || has(condition, "break;");
  const bool loops = has(condition, "for (") || has(condition, "while (");
  if (!loops && !has(condition, "if (")) return {};
  // Code that a jump (return, break or continue) skips is indented as far as the jump; code that a
  // condition or a loop skips is indented further.
  if (jumps != (indentation(text[line]) == indentation(condition))) return {};
  const int last = end_of_block(text, line);
  for (int i = line; i <= last; ++i) {
    const auto run = runs.find(i);
    if (run != runs.end() && run->second.number != 0) return {};
    if (has(text[i], "throw ") && last - line < 3) return {};
  }
  const auto next = static_cast<size_t>(last) + 1;
  if (next < text.size() && has(text[next], "else")) return {};
  const Kind kind = jumps ? Kind::jump : loops ? Kind::loop : Kind::condition;
  return SkippedCode{decides.code, line, last, decides.number, kind};
}

}  // namespace

std::vector<SkippedCode> skipped_code(const std::vector<CodeLine>& lines,
                                      const std::map<uint64_t, uint64_t>& reached) {
  std::map<std::string, LineRuns> files;
  for (const CodeLine& code : lines) {
    LineRun& run = files[code.file].try_emplace(code.line, LineRun{code}).first->second;
    const auto found = reached.find(code.address);
    if (found != reached.end() && run.number < found->second) run = {code, found->second};
  }
  std::vector<SkippedCode> all;
  for (const auto& [file, runs] : files) {
    const std::vector<std::string> text = text_of(file);
    const LineRun* before = nullptr;
    int until = 0;  // number of the last line of the SkippedCode that was found last
    for (const auto& [line, run] : runs) {
      const LineRun* const decides = before;
      before = &run;
      // The file has become shorter since it was compiled, so its lines are no longer those that
      // ran.
      if (static_cast<size_t>(line) >= text.size()) break;
      if (decides == nullptr || decides->number == 0 || run.number != 0 || line <= until) continue;
      if (const auto found = skipped_after(text, runs, *decides, line)) {
        all.push_back(*found);
        until = found->last;
      }
    }
  }
  std::ranges::sort(all, [](const SkippedCode& a, const SkippedCode& b) {
    return a.kind == b.kind ? a.number > b.number : a.kind < b.kind;
  });
  return all;
}

}  // namespace fsdp
