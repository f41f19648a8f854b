#include <why/investigation.h>
#include <why/skipped_code.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

namespace fsdp {
namespace {

using Action = WatchPage::Action;

// The rank is replayed at most this often to follow the writes to one element.
constexpr int kMostReplays = 7;
// Returns whether the file is one of the task's files in the top folder `folder`, "tasks" or
// "solutions". If `task` is 0, the file may belong to any task.
bool is_in(const std::string& file, const std::string& folder, int task) {
  for (const std::string part : {"/", "/extensions/"}) {
    const std::string wanted = "/" + folder + part + "task" + (task ? std::to_string(task) : "");
    if (file.find(wanted) != std::string::npos) return true;
  }
  return false;
}

// Returns whether the file is one of the task's, in tasks/ or in solutions/; if `task` is 0, of any
// task's.
bool is_of_task(const std::string& file, int task) {
  return is_in(file, "tasks", task) || is_in(file, "solutions", task);
}

// Returns the indices of those `lines` that are the student's code. The lines of the tested task
// come first, in solutions/ too, because ./fsdp why can also test the reference solutions; lines of
// other tasks follow if they are in tasks/.
std::vector<size_t> own_lines(const std::vector<SourceLine>& lines, int task) {
  std::vector<size_t> own;
  const auto add = [&](const std::string& folder, int number) {
    for (size_t i = 0; i < lines.size(); ++i)
      if (is_in(lines[i].file, folder, number) && std::ranges::count(own, i) == 0) own.push_back(i);
  };
  add("tasks", task);
  add("solutions", task);
  add("tasks", 0);
  return own;
}

}  // namespace

bool Finding::in(const std::string& function) const {
  return std::ranges::any_of(lines, [&](const SourceLine& one) {
    return one.function == function || one.function.ends_with("::" + function);
  });
}

Investigation::Investigation(Question question, std::vector<std::string> command)
    : question_(std::move(question)),
      command_(std::move(command)),
      source_lines_(command_.front()) {
  std::strncpy(page_->observation, question_.name.c_str(), sizeof page_->observation - 1);
  page_->element = question_.element;
}

void Investigation::replay(uint64_t address, uint64_t width, const std::vector<uint64_t>& lines) {
  ++replays_;
  page_->address = address;
  page_->width = width;
  reached_ = run_watched(page_, command_, lines);
}

Finding Investigation::finding(const Action& action) {
  Finding found{
      action, source_lines_.of({action.frames.begin(), action.frames.begin() + action.depth}), {}};
  found.own = own_lines(found.lines, question_.task());
  return found;
}

std::vector<const Action*> Investigation::actions() const {
  std::vector<const Action*> all;
  const uint64_t count = std::min<uint64_t>(page_->actions, WatchPage::kActions - 1);
  for (uint64_t i = 0; i < count; ++i) {
    const Action& action = page_->action[(page_->actions - i) % WatchPage::kActions];
    if (action.kind != Action::Kind::none) all.push_back(&action);
  }
  return all;
}

std::optional<Finding> Investigation::last_write(uint64_t address, uint64_t width,
                                                 uint64_t before) {
  replay(address, width);
  const auto all = actions();
  if (before == UINT64_MAX && question_.element < 0) {
    // The observation is not a tensor but a number. If the rank has read it from the tensor element
    // at `address`, what was written after this read is ignored.
    const auto read = std::ranges::find_if(all, [&](const Action* action) {
      return action->kind == Action::Kind::read && action->address == address;
    });
    if (read != all.end()) before = (*read)->time;
  }
  for (const Action* action : all)
    if (action->kind == Action::Kind::write && action->time < before) return finding(*action);
  return {};
}

std::optional<Finding> Investigation::pending_call(uint64_t time) {
  std::set<std::string> awaited;
  for (const Action* action : actions()) {
    if (action->time < time) break;
    if (action->kind == Action::Kind::wait) awaited.insert(action->collective);
    if (action->kind != Action::Kind::issue || awaited.contains(action->collective)) continue;
    Finding found = finding(*action);
    // Puts the student's outermost calling line first, because not the function that issues the
    // collective, but its caller decides whether to wait for the collective.
    std::ranges::reverse(found.own);
    if (found.line() != nullptr) return found;
  }
  return {};
}

// Returns the time at which the collective that made `write` was issued. If no collective made
// `write`, returns write.since, the time at which the operator that wrote began.
uint64_t Investigation::time_of_issue(const Action& write) const {
  for (const Action* action : actions())
    if (action->kind == Action::Kind::issue && action->time <= write.time &&
        std::strcmp(action->collective, write.collective) == 0)
      return action->time;
  return write.since;
}

std::vector<Finding> Investigation::find_writes(uint64_t address, uint64_t width) {
  std::vector<Finding> found;
  uint64_t before = UINT64_MAX;
  const int last = replays_ + kMostReplays;
  while (address != 0 && replays_ < last) {
    const auto write = last_write(address, width, before);
    if (!write) break;
    if (write->in("spoil"))
      if (const auto pending = pending_call(write->action.time)) found.push_back(*pending);
    found.push_back(*write);
    const Action& action = write->action;
    if (write->in("spoil")) break;
    before = action.collective[0] != 0 ? time_of_issue(action) : action.since;
    // An operator that adds to its target reads the target's old element and another element. The
    // search continues with the other element, which is newer.
    size_t source = 0;
    if (action.sources[0] == address && action.sources[1] != 0) source = 1;
    address = action.sources[source];
    width = action.widths[source];
  }
  return found;
}

std::vector<Finding> Investigation::find_call() {
  int64_t number = 0;
  auto all = actions();
  std::ranges::reverse(all);
  for (const Action* action : all)
    if (action->kind == Action::Kind::issue && number++ == question_.call)
      return {finding(*action)};
  return {};
}

// Returns the name of the function that the name of an observation contains: "reshard" for "bytes
// that reshard() left alive"; "~" if it speaks of a destructor; "" if it contains no function.
std::string named_function(const std::string& observation) {
  const size_t end = observation.find("()");
  if (observation.find("destructor") != std::string::npos) return "~";
  if (end == std::string::npos) return "";
  size_t begin = end;
  while (begin > 0 && (std::isalnum(static_cast<unsigned char>(observation[begin - 1])) != 0 ||
                       observation[begin - 1] == '_'))
    --begin;
  return observation.substr(begin, end - begin);
}

// Moves the student's line that is in the function `name` to the front of finding.own; returns
// whether there is such a line.
bool prefer(Finding& finding, const std::string& name) {
  const auto found = std::ranges::find_if(finding.own, [&](size_t line) {
    const std::string& function = finding.lines[line].function;
    const std::string whole = without_lambda(function);
    return whole.ends_with("::" + name) || whole == name ||
           (name == "~" && whole.find('~') < whole.size());
  });
  if (found == finding.own.end()) return false;
  std::rotate(finding.own.begin(), found, found + 1);
  return true;
}

std::optional<Finding> Investigation::in_named_function(const std::vector<Finding>& past) const {
  const std::string name = named_function(question_.name);
  if (name.empty()) return {};
  const bool waits = question_.name.find("wait") != std::string::npos;
  const bool bytes = question_.name.starts_with("bytes at");
  std::optional<Finding> last;
  for (Finding finding : past) {
    if (!prefer(finding, name)) continue;
    const Action::Kind kind = finding.action.kind;
    if (!last) last = finding;
    if ((waits && kind == Action::Kind::wait) ||
        (bytes && kind == Action::Kind::spoil && !finding.in("free")))
      return finding;
  }
  return last;
}

// For an observation about bytes: returns the allocation of a block that was not freed and that has
// exactly as many bytes as the observation has more than expected; nothing if there is none.
std::optional<Finding> Investigation::memory_still_alive(const std::vector<Finding>& past) const {
  if (question_.name.find("bytes") == std::string::npos) return {};
  const double more =
      std::strtod(question_.is.c_str(), nullptr) - std::strtod(question_.expected.c_str(), nullptr);
  std::vector<uint64_t> freed;
  for (const Finding& finding : past) {
    const Action& action = finding.action;
    if (action.kind != Action::Kind::spoil) continue;
    if (finding.in("free")) {
      freed.push_back(action.address);
    } else if (const auto end = std::ranges::find(freed, action.address); end != freed.end()) {
      freed.erase(end);
    } else if (finding.line() != nullptr && static_cast<double>(action.bytes) == more) {
      return finding;
    }
  }
  return {};
}

// Splits the function's name and its file's name into words, and returns how many of these words
// `text` contains; words of one or two letters do not count. For the function clip_grad_norm in
// p_norm.cpp and the text "p_norm.clipping", it returns 3: clip, norm, norm.
int words_in(const SourceLine& line, const std::string& text) {
  const std::string function = without_lambda(line.function);
  std::istringstream words(function.substr(function.rfind(':') + 1) + '_' +
                           std::filesystem::path(line.file).stem().string());
  int count = 0;
  for (std::string word; std::getline(words, word, '_');)
    count += word.size() > 2 && text.find(word) != std::string::npos ? 1 : 0;
  return count;
}

bool is_telling(const Finding& finding) {
  const SourceLine* line = finding.line();
  return finding.action.kind == Action::Kind::line && line != nullptr &&
         line->function.find('~') == std::string::npos && !line->function.starts_with("make_") &&
         !line->file.ends_with(".h");
}

// Returns the line of the student's code that ran last. Lines in destructors, in factories
// (make_...) and in headers do not count. Prefers the last function of which at least three lines
// ran, because a function with fewer only returns a value or was only leaving.
std::optional<Finding> last_line(const std::vector<Finding>& past) {
  std::optional<Finding> any, of_function;
  std::set<int> lines;
  for (const Finding& finding : past) {
    if (!is_telling(finding)) continue;
    if (!of_function || of_function->line()->function != finding.line()->function) {
      of_function = finding;
      lines.clear();
    }
    if (!any) any = finding;
    lines.insert(finding.line()->line);
    if (lines.size() >= 3) return of_function;
  }
  return any;
}

// Returns the last line that ran of the function whose name has the most words in common with
// `text`, such as the names of the test and of the observation. If no function has such a word,
// returns last_line(past).
std::optional<Finding> last_line(const std::vector<Finding>& past, const std::string& text) {
  const Finding* best = nullptr;
  int most = 0;
  for (const Finding& finding : past) {
    if (!is_telling(finding)) continue;
    const int words = words_in(*finding.line(), text);
    if (words <= most) continue;
    best = &finding;
    most = words;
  }
  return best == nullptr ? last_line(past) : *best;
}

std::vector<uint64_t> Investigation::addresses() {
  if (code_.empty()) code_ = code_lines(command_.front());
  std::vector<uint64_t> all;
  for (const CodeLine& line : code_)
    all.push_back(line.address);
  return all;
}

// Replays the rank and returns what it did until the wrong observation or until it ended, the
// latest action first; each line of the student's code that ran is also an action.
std::vector<Finding> Investigation::trace() {
  replay(0, 0, addresses());
  std::vector<Finding> past;
  std::vector<uint64_t> frames;
  for (const Action* action : actions())
    frames.insert(frames.end(), action->frames.begin(), action->frames.begin() + action->depth);
  // One call of addr2line finds the lines of all frames, because addr2line starts slowly.
  source_lines_.of(frames);
  for (const Action* action : actions())
    if (action->kind != Action::Kind::observe) past.push_back(finding(*action));
  return past;
}

std::vector<Finding> Investigation::find_last() {
  std::vector<Finding> past = trace();
  if (question_.name.empty()) {
    // Drops the actions after the exception that ended the rank.
    const auto raised = std::ranges::find(past, Action::Kind::raise,
                                          [](const Finding& one) { return one.action.kind; });
    if (raised != past.end()) {
      past.erase(past.begin(), raised);
      if (past.front().line() != nullptr) return {past.front()};
    }
  }
  if (auto found = in_named_function(past)) return {*found};
  std::vector<Finding> found;
  if (const auto block = memory_still_alive(past)) found.push_back(*block);
  if (const auto last = last_line(past, question_.names())) found.push_back(*last);
  return found;
}

// Returns the line that passed over code that never ran, for example a condition that was false. An
// if around a single statement is ignored, because its condition is often false in right runs too.
// A line that ran last before the action number `since` is ignored too. Requires: the last replay
// traced the lines (trace()).
std::optional<Finding> Investigation::skipped(uint64_t since) {
  std::vector<CodeLine> tested;
  for (const CodeLine& line : code_)
    if (is_of_task(line.file, question_.task())) tested.push_back(line);
  const auto all = skipped_code(tested, reached_);
  const auto best = std::ranges::find_if(all, [since](const SkippedCode& one) {
    return one.number > since && (one.kind != SkippedCode::Kind::condition || one.last > one.first);
  });
  if (best == all.end()) return {};
  Finding found{{}, source_lines_.of({best->decides.address + 1}), {}};
  found.own = own_lines(found.lines, question_.task());
  found.because = Finding::Because::skips;
  if (found.line() == nullptr) return {};
  return found;
}

bool writes(const Finding& finding) {
  return finding.action.kind == Action::Kind::write && !finding.in("spoil");
}

bool same_line(const Finding& a, const Finding& b) {
  return a.line()->file == b.line()->file && a.line()->line == b.line()->line;
}

// Compares the writes that led to a wrong element with those that led to a right element of the
// same tensor, from the last write back. Returns the first difference: the write of the wrong
// element or, if no line wrote it there, the write of the right element.
std::optional<Finding> first_difference(const std::vector<Finding>& wrong,
                                        const std::vector<Finding>& right) {
  for (size_t i = 0; i < right.size(); ++i) {
    const bool written = i < wrong.size() && writes(wrong[i]);
    if (written && same_line(wrong[i], right[i])) continue;
    if (written) return wrong[i];
    if (!writes(right[i])) break;
    Finding found = right[i];
    found.because = Finding::Because::wrote_other;
    return found;
  }
  return {};
}

// Looks at the functions that made the writes of `found`, finds the one whose name has the most
// words in common with the test's name, and moves its write to the front. If no function has such a
// word, the order stays.
void prefer_named(std::vector<Finding>& found, const std::string& test) {
  int most = 0;
  std::pair<size_t, size_t> best;
  for (size_t i = 0; i < found.size(); ++i) {
    for (size_t j = 0; j < found[i].own.size() && writes(found[i]); ++j) {
      const int words = words_in(found[i].lines[found[i].own[j]], test);
      if (words <= most) continue;
      most = words;
      best = {i, j};
    }
  }
  if (most == 0) return;
  const auto write = found.begin() + static_cast<std::ptrdiff_t>(best.first);
  const auto line = write->own.begin() + static_cast<std::ptrdiff_t>(best.second);
  if (words_in(*write->line(), test) == 0) std::rotate(write->own.begin(), line, line + 1);
  std::rotate(found.begin(), write, write + 1);
}

// Returns the line that ran last in the file after which the suite is named (state.cpp for
// T5_5_state). Lines in destructors and in make_...() do not count.
std::optional<Finding> last_line_in_file_of(const std::vector<Finding>& past,
                                            const std::string& suite) {
  for (const Finding& finding : past) {
    if (!is_telling(finding)) continue;
    const std::filesystem::path file(finding.line()->file);
    if (suite.ends_with('_' + file.stem().string())) return finding;
  }
  return {};
}

std::vector<Finding> Investigation::find_own_writes(int64_t element) {
  page_->element = element;
  replay(0, 0);
  auto found = find_writes(page_->observed_address, page_->observed_width);
  // If the test itself, not the student's code, wrote the right element, its writes are not
  // returned: they do not show which line should have written the wrong element.
  const bool by_test = !found.empty() && found.front().line() == nullptr;
  if (element == question_.right && by_test) return {};
  std::erase_if(found, [](const Finding& one) { return one.line() == nullptr; });
  return found;
}

std::vector<Finding> Investigation::find_element() {
  std::vector<Finding> found = find_own_writes(question_.element), right;
  if (question_.right >= 0) right = find_own_writes(question_.right);
  const bool nan = question_.text.find("is nan") != std::string::npos;
  const bool pending = std::ranges::any_of(
      found, [](const Finding& one) { return one.action.kind == Action::Kind::issue; });
  std::optional<Finding> first;
  if (pending) {
    // The function of the line that last_line() finds should have waited for the collective.
    first = last_line(trace());
  } else if (const auto difference = first_difference(found, right)) {
    first = difference;
  } else if (nan && !found.empty()) {
    // The earliest write is reported first, because what later writes compute from its NaN is NaN
    // too.
    std::ranges::reverse(found);
  } else if (std::ranges::none_of(found, writes)) {
    const auto last = last_line(trace(), question_.names());
    first = skipped();
    if (!first) first = last;
  } else {
    prefer_named(found, question_.test);
    const std::string suite = question_.test.substr(0, question_.test.find('.'));
    first = last_line_in_file_of(trace(), suite);
    if (first && first->line()->file == found.front().line()->file) first.reset();
  }
  if (first) found.insert(found.begin(), *first);
  return found;
}

const Action* Investigation::observation_before() const {
  bool wrong_one = true;  // the latest observation is the wrong one
  for (const Action* action : actions()) {
    if (action->kind != Action::Kind::observe) continue;
    if (!wrong_one) return action;
    wrong_one = false;
  }
  return nullptr;
}

// Returns the latest collective of the element's unit, if no line had waited for it.
std::optional<Finding> Investigation::pending_call_of_unit() {
  const size_t begin = question_.name.find(", unit "), end = question_.name.find(',', begin + 1);
  if (begin == std::string::npos) return {};
  const size_t name = begin + std::strlen(", unit ");
  const std::string unit = ' ' + question_.name.substr(name, end - name);
  auto pending = pending_call(0);
  if (!pending || !std::string(pending->action.collective).ends_with(unit)) return {};
  return pending;
}

bool Investigation::is_right(const WatchPage::Action& write) const {
  double value = 0;
  if (write.bytes != 4 && write.bytes != 8) return false;
  if (write.bytes == 4) {
    float narrow = 0;
    std::memcpy(&narrow, &write.value, sizeof narrow);
    value = narrow;
  } else {
    std::memcpy(&value, &write.value, sizeof value);
  }
  const auto is = [&](double other) { return std::abs(value - other) <= 1e-6 * std::abs(other); };
  if (is(std::strtod(question_.expected.c_str(), nullptr))) return true;
  if (std::ranges::any_of(question_.others, is)) return true;
  // While gradients are reduced, the value is a sum of the gradients of some microbatches.
  const size_t count = std::min<size_t>(question_.of_microbatches.size(), 12);
  for (uint64_t some = 1; some < uint64_t{1} << count; ++some) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i)
      if ((some >> i & 1) != 0) sum += question_.of_microbatches[i];
    if (is(sum)) return true;
  }
  return false;
}

// Moves the student's write that is to blame to the front of `chain`, which begins with the wrong
// value: the write before the first one, from the front, whose value is right. If none is right and
// the gradients of the microbatches are known, the earliest write read something else than them.
void Investigation::blame(std::vector<Finding>& chain) const {
  size_t wrong = 0;
  bool right = false;
  for (size_t i = 0; i < chain.size() && !right; ++i) {
    if (!writes(chain[i])) continue;
    right = i > 0 && is_right(chain[i].action);
    if (!right && chain[i].line() != nullptr) wrong = i;
  }
  if (!right && question_.of_microbatches.empty()) return;
  const auto blamed = chain.begin() + static_cast<std::ptrdiff_t>(wrong);
  std::rotate(chain.begin(), blamed, blamed + 1);
}

// Returns the line that decided that nothing wrote the element since the observation before.
// `written_before`: whether the student's code has ever written it.
std::optional<Finding> Investigation::line_without_write(bool written_before) {
  if (question_.right >= 0) {
    const auto right = find_own_writes(question_.right);
    if (!right.empty() && is_recent(right.front())) {
      Finding found = right.front();
      found.because = Finding::Because::wrote_other;
      return found;
    }
  }
  const auto past = trace();
  const Action* const before = observation_before();
  std::optional<Finding> found;
  if (written_before) found = skipped(before == nullptr ? 0 : before->number);
  return found ? found : last_line(past, question_.names());
}

bool Investigation::is_recent(const Finding& finding) const {
  const Action* const before = observation_before();
  return writes(finding) && (before == nullptr || finding.action.time >= before->time);
}

std::vector<Finding> Investigation::find_element_of_run() {
  const auto is_own = [](const Finding& one) { return one.line() != nullptr; };
  page_->element = question_.element;
  replay(0, 0);
  std::vector<Finding> found = find_writes(page_->observed_address, page_->observed_width);
  std::optional<Finding> first = pending_call_of_unit();
  if (!first && !found.empty() && is_recent(found.front())) {
    blame(found);
  } else if (!first) {
    first = line_without_write(std::ranges::any_of(found, is_own));
  }
  std::erase_if(found, [&](const Finding& one) { return !is_own(one); });
  if (first) found.insert(found.begin(), *first);
  return found;
}

// Returns the step that the action is; nothing if other programs may do it at another time.
std::optional<Step> step_of(const Finding& finding, int task) {
  Step step;
  step.name = finding.action.collective;
  switch (finding.action.kind) {
    case Action::Kind::line:
      if (finding.lines.empty()) return {};
      step.kind = Step::Kind::function;
      step.name = without_lambda(finding.lines.front().function);
      break;
    case Action::Kind::call:
      step.kind = Step::Kind::call;
      step.name = finding.action.operation;
      step.arguments = finding.action.arguments;
      break;
    case Action::Kind::issue:
      step.kind = Step::Kind::issue;
      break;
    case Action::Kind::wait:
      step.kind = Step::Kind::wait;
      break;
    case Action::Kind::read:
      step.kind = Step::Kind::read;
      break;
    default:
      return {};
  }
  for (const SourceLine& line : finding.lines)
    if (is_of_task(line.file, task)) step.own.push_back(line);
  // Skips what the test itself does.
  const bool by_student = std::ranges::any_of(
      finding.lines, [](const SourceLine& line) { return is_of_task(line.file, 0); });
  if (!by_student) return {};
  return step;
}

StepsOfRank Investigation::steps() {
  StepsOfRank found;
  page_->calls = true;
  std::vector<Finding> past = trace();
  page_->calls = false;
  std::vector<uint64_t> frames;
  for (const CodeLine& line : code_)
    if (is_of_task(line.file, question_.task())) frames.push_back(line.address + 1);
  for (const SourceLine& line : source_lines_.of(frames))
    if (is_of_task(line.file, question_.task()))
      found.functions.insert(without_lambda(line.function));
  std::map<std::pair<std::string, int>, bool> leaves;
  std::ranges::reverse(past);
  for (const Finding& finding : past) {
    auto step = step_of(finding, question_.task());
    if (!step) continue;
    if (step->kind == Step::Kind::function && !step->own.empty()) {
      const SourceLine& line = step->own.front();
      const auto [known, is_new] = leaves.try_emplace({line.file, line.line});
      if (is_new) known->second = code_of(line).starts_with('}');
      step->leaves = known->second;
    }
    found.steps.push_back(*step);
  }
  return found;
}

std::vector<Finding> Investigation::find() {
  replay(0, 0);
  if (question_.call >= 0) return find_call();
  std::vector<Finding> found;
  if (page_->observed_address != 0) {
    if (question_.element >= 0) {
      found = question_.compares_runs ? find_element_of_run() : find_element();
    } else {
      found = find_writes(page_->observed_address, page_->observed_width);
      std::erase_if(found, [](const Finding& one) { return one.line() == nullptr; });
    }
  }
  return found.empty() ? find_last() : found;
}

}  // namespace fsdp
