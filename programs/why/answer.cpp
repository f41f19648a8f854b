#include <base/text.h>
#include <why/answer.h>

#include <cstdlib>
#include <set>

namespace fsdp {
namespace {

using Kind = WatchPage::Action::Kind;

constexpr size_t kMostPlaces = 4;

std::string path_text(const std::string& file) {
  const char* const root = std::getenv("FSDP_ROOT");
  const std::string prefix = root == nullptr ? "" : std::string(root) + '/';
  return !prefix.empty() && file.starts_with(prefix) ? file.substr(prefix.size()) : file;
}

std::string place_text(const SourceLine& line) {
  const std::string code = code_of(line);
  return "  " + path_text(line.file) + ':' + std::to_string(line.line) + ", in " + line.function +
         '\n' + (code.empty() ? "" : "      " + code + '\n');
}

// Returns the event in which the wrong value was seen.
std::string seen(const Question& question) {
  return question.compares_runs ? "the value was compared" : "the test looked";
}

// Returns a sentence about "this line", the student's line of the finding: what it did to the wrong
// value, or that it passed over other code.
std::string action_text(const Question& question, const Finding& finding) {
  const WatchPage::Action& action = finding.action;
  const std::string collective = action.collective;
  if (finding.because == Finding::Because::wrote_other)
    return "This line wrote a right element of the same tensor, but not the wrong one.";
  if (finding.because == Finding::Because::skips)
    return "No line of your code wrote the value. This line passed over the code that follows it, "
           "which never ran.";
  if (finding.because == Finding::Because::parts)
    return wrap(
        "Up to this line, your code did the same as the reference solution. " + finding.text, 100,
        0);
  switch (action.kind) {
    case Kind::write:
      if (finding.in("spoil"))
        return finding.in("free")
                   ? "This line freed the memory, and later code read it (NaN)."
                   : "This line allocated the memory (NaN), and no line of your code has "
                     "written the value since.";
      if (!collective.empty())
        return "The value came from the collective " + collective + ", for which this line waited.";
      if (action.operation[0] != 0)
        return std::string("torch's ") + action.operation +
               ", called by this line, wrote the value.";
      return "This line wrote the value.";
    case Kind::issue:
      return "This line issued " + collective +
             (question.call >= 0 ? "."
                                 : ", and no line had waited for it when " + seen(question) + '.');
    case Kind::wait:
      return "This line waited for " + collective + '.';
    case Kind::spoil:
      return "This line allocated " + std::to_string(action.bytes) +
             " bytes, which were alive when " + seen(question) + '.';
    case Kind::line:
      return "Of your code, this line was the last to run before " + seen(question) + '.';
    case Kind::raise:
      return "This line threw the exception.";
    default:
      return "This line was the last one of your code that did something visible before " +
             seen(question) + '.';
  }
}

std::string trace_text(const Finding& finding) {
  std::string text;
  for (const SourceLine& line : finding.lines)
    text +=
        "      " + line.function +
        (line.file.empty() ? "" : "  " + path_text(line.file) + ':' + std::to_string(line.line)) +
        '\n';
  return text;
}

}  // namespace

std::string answer(const Question& question, const std::vector<Finding>& findings, bool verbose) {
  std::string head = question.test + ": rank " + std::to_string(question.rank);
  head += question.name.empty() ? " failed: " : ", \"" + question.name + "\": ";
  head += question.text + '\n';
  if (!question.remark.empty()) head += question.remark + '\n';
  std::string text = wrap(head, 100, 4);
  std::set<std::string> places;
  for (const Finding& finding : findings) {
    if (verbose) text += "\n  the functions that were running:\n" + trace_text(finding);
    if (finding.line() == nullptr || places.size() == kMostPlaces) continue;
    const std::string place = place_text(*finding.line());
    if (!places.insert(place).second) continue;
    text += places.size() > 1 ? "\nSee also: " : "\n";
    text += action_text(question, finding) + '\n' + place;
    for (size_t i = 1; i < finding.own.size() && i < 3; ++i)
      text += "  called from" + place_text(finding.lines[finding.own[i]]).substr(1);
  }
  if (places.empty()) text += "\nNo line of your code was running when the value came to be.\n";
  return text;
}

}  // namespace fsdp
