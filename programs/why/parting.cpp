#include <why/parting.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace fsdp {
namespace {

using StepKind = Step::Kind;
using Steps = std::vector<Step>;

std::vector<std::string> functions_of(const Step& step) {
  std::vector<std::string> names;
  for (const SourceLine& line : step.own)
    names.push_back(without_lambda(line.function));
  return names;
}

bool equal(const Step& a, const Step& b) {
  return a.kind == b.kind && a.name == b.name && a.arguments == b.arguments &&
         (a.kind == StepKind::function || functions_of(a) == functions_of(b));
}

// Returns the steps that are compared if the programs have the same functions: all but those of
// functions that only one program ran. Steps of one function in a row become one step, the last.
Steps all_steps(const Steps& steps, const std::set<std::string>& in_both) {
  Steps kept;
  for (const Step& step : steps) {
    if (step.kind == StepKind::function) {
      if (!in_both.contains(step.name)) continue;
      const bool goes_on =
          !kept.empty() && kept.back().kind == StepKind::function && kept.back().name == step.name;
      if (goes_on && step.leaves) continue;
      if (goes_on) kept.pop_back();
    }
    kept.push_back(step);
  }
  return kept;
}

// Returns the indices of the steps that are the same in all right solutions.
std::vector<size_t> visible_steps(const Steps& steps) {
  std::vector<size_t> kept;
  std::map<std::string, int> pending;  // name of a collective -> calls for which no line has waited
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (step.kind == StepKind::function || step.kind == StepKind::call) continue;
    if (step.kind == StepKind::issue) ++pending[step.name];
    if (step.kind == StepKind::wait) {
      if (pending[step.name] == 0) continue;
      --pending[step.name];
    }
    kept.push_back(i);
  }
  return kept;
}

Steps chosen(const Steps& steps, const std::vector<size_t>& indices) {
  Steps kept;
  for (const size_t index : indices)
    kept.push_back(steps[index]);
  return kept;
}

std::set<std::string> functions_that_ran(const Steps& steps) {
  std::set<std::string> names;
  for (const Step& step : steps)
    if (step.kind == StepKind::function) names.insert(step.name);
  return names;
}

// Returns the last line of the tested task that ran before `end`, but for closing braces; of the
// function `name`, if it is not "".
std::optional<SourceLine> last_line(Steps::const_iterator begin, Steps::const_iterator end,
                                    const std::string& name = "") {
  std::string wanted = name;
  std::optional<SourceLine> brace;
  while (end != begin) {
    --end;
    if (end->own.empty()) continue;
    const std::string function = without_lambda(end->own.front().function);
    if (!wanted.empty() && function != wanted) continue;
    if (!end->leaves) return end->own.front();
    wanted = function;
    if (!brace) brace = end->own.front();
  }
  return brace;
}

// Returns what a rank did next; `end`: what it says if the rank did nothing more.
std::string text_of(const Steps& steps, size_t index, const std::string& end) {
  if (index >= steps.size()) return end;
  const Step& step = steps[index];
  switch (step.kind) {
    case StepKind::function:
      return "ran " + step.name;
    case StepKind::call:
      return "called torch's " + step.name;
    case StepKind::issue:
      return "issued " + step.name;
    case StepKind::wait:
      return "waited for " + step.name;
    case StepKind::read:
      return "read a number from a tensor";
  }
  return end;
}

// Returns the line of `yours` that decided that its step `at` differs from that of `reference`, if
// all steps are compared.
std::optional<SourceLine> line_of_any_step(const Steps& yours, const Steps& reference, size_t at) {
  if (at < std::min(yours.size(), reference.size())) {
    const Step &mine = yours[at], &right = reference[at];
    const bool only_arguments = mine.kind == right.kind && mine.name == right.name;
    if (mine.kind == StepKind::call && only_arguments && !mine.own.empty()) return mine.own.front();
  }
  return last_line(yours.begin(), yours.begin() + static_cast<std::ptrdiff_t>(at));
}

// Does the same if only visible steps are compared. `all`: all steps of the student's code;
// `indices`: which of them are `yours`.
std::optional<SourceLine> line_of_visible_step(const Steps& yours, const Steps& reference,
                                               size_t at, const Steps& all,
                                               const std::vector<size_t>& indices) {
  const bool ends = at >= yours.size();
  const auto before = all.begin() + static_cast<std::ptrdiff_t>(at == 0 ? 0 : indices[at - 1]);
  const auto next = ends ? all.end() : all.begin() + static_cast<std::ptrdiff_t>(indices[at]);
  if (at < reference.size() && !reference[at].own.empty()) {
    // The student's code lacks a step if it goes on with one that the reference solution does
    // later.
    const bool lacks_a_step =
        ends || std::any_of(reference.begin() + static_cast<std::ptrdiff_t>(at), reference.end(),
                            [&](const Step& step) {
                              return step.kind == yours[at].kind && step.name == yours[at].name;
                            });
    const std::string function = without_lambda(reference[at].own.front().function);
    if (lacks_a_step)
      if (const auto line = last_line(before, next, function)) return line;
  }
  if (!ends && !yours[at].own.empty()) return yours[at].own.front();
  return last_line(all.begin(), next);
}

// Returns whether nine tenths of the functions of the reference solution are in `yours` too. A
// fault may make a few differ: a function that is no longer called may be missing.
bool has_most(const std::set<std::string>& yours, const std::set<std::string>& reference) {
  const auto shared = std::ranges::count_if(
      reference, [&](const std::string& name) { return yours.contains(name); });
  return shared * 10 >= std::ssize(reference) * 9;
}

}  // namespace

std::optional<Parting> find_parting(const StepsOfRank& yours, const StepsOfRank& reference) {
  const bool comparable = has_most(yours.functions, reference.functions);
  std::set<std::string> in_both;
  std::ranges::set_intersection(functions_that_ran(yours.steps),
                                functions_that_ran(reference.steps),
                                std::inserter(in_both, in_both.end()));
  const auto visible = visible_steps(yours.steps);
  const Steps mine = comparable ? all_steps(yours.steps, in_both) : chosen(yours.steps, visible);
  const Steps right = comparable ? all_steps(reference.steps, in_both)
                                 : chosen(reference.steps, visible_steps(reference.steps));
  const auto [differs, other] =
      std::ranges::mismatch(mine, right, [&](const Step& a, const Step& b) {
        return comparable ? equal(a, b) : a.kind == b.kind && a.name == b.name;
      });
  if (differs == mine.end() && other == right.end()) return {};
  const auto at = static_cast<size_t>(differs - mine.begin());
  const auto line = comparable ? line_of_any_step(mine, right, at)
                               : line_of_visible_step(mine, right, at, yours.steps, visible);
  if (!line) return {};
  const std::string end = "did nothing more", what = text_of(mine, at, end);
  const std::string other_text = text_of(right, at, end);
  return Parting{*line, what, what == other_text ? "did so with other values" : other_text};
}

}  // namespace fsdp
