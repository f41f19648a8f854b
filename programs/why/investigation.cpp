#include <why/investigation.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <set>

namespace fsdp {
namespace {

using Action = WatchPage::Action;

constexpr int kMostReplays = 12;
// The lines of one task of the student's; `task` 0: of any task.
bool is_in(const std::string& file, const std::string& folder, int task) {
  for (const std::string part : {"/", "/extensions/"}) {
    const std::string wanted = "/" + folder + part + "task" + (task ? std::to_string(task) : "");
    if (file.find(wanted) != std::string::npos) return true;
  }
  return false;
}

// Returns the lines of the student's code. The lines of the tested task come first, because its
// tests may run over the solutions of the earlier tasks.
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
  run_watched(page_, command_, lines);
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
    // A number was read from its tensor before the test passed it on.
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
    std::ranges::reverse(found.own);  // the caller decides whether to wait
    if (found.line() != nullptr) return found;
  }
  return {};
}

std::vector<Finding> Investigation::find_writes(uint64_t address, uint64_t width) {
  std::vector<Finding> found;
  uint64_t before = UINT64_MAX;
  while (address != 0 && replays_ < kMostReplays) {
    const auto write = last_write(address, width, before);
    if (!write) break;
    if (write->in("spoil"))
      if (const auto pending = pending_call(write->action.time)) found.push_back(*pending);
    found.push_back(*write);
    const Action& action = write->action;
    if (write->line() != nullptr && !action.copies && action.collective[0] == 0) break;
    address = action.sources[0];
    width = action.widths[0];
    before = action.since;
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

// Returns the function that an observation is about: "reshard" for "bytes that reshard() left
// alive"; "" if it names none.
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

// Moves the student's line in the function `name` to the front; returns whether there is one.
bool prefer(Finding& finding, const std::string& name) {
  const auto found = std::ranges::find_if(finding.own, [&](size_t line) {
    const std::string& function = finding.lines[line].function;
    const std::string whole = function.substr(0, function.find(','));
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

// A block that was allocated and not freed, of as many bytes as there are too many.
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

// Returns the last line of the student's code that ran, but not of a function that only returns a
// value.
std::optional<Finding> last_line(const std::vector<Finding>& past) {
  std::optional<Finding> any, of_function;
  std::set<int> lines;
  for (const Finding& finding : past) {
    const SourceLine* line = finding.line();
    if (finding.action.kind != Action::Kind::line || line == nullptr) continue;
    if (line->function.find('~') < line->function.size()) continue;  // a destructor
    if (!of_function || of_function->line()->function != line->function) {
      of_function = finding;
      lines.clear();
    }
    if (!any) any = finding;
    lines.insert(line->line);
    if (lines.size() >= 3) return of_function;
  }
  return any;
}

std::vector<Finding> Investigation::find_last() {
  replay(0, 0, addresses_of_lines(command_.front()));
  std::vector<Finding> past;
  std::vector<uint64_t> frames;
  for (const Action* action : actions())
    frames.insert(frames.end(), action->frames.begin(), action->frames.begin() + action->depth);
  source_lines_.of(frames);  // all at once, because addr2line takes a while to begin
  for (const Action* action : actions())
    if (action->kind != Action::Kind::observe) past.push_back(finding(*action));
  if (question_.name.empty()) {
    // Actions after the exception that ended the rank do not count.
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
  if (const auto last = last_line(past)) found.push_back(*last);
  return found;
}

std::vector<Finding> Investigation::find() {
  replay(0, 0);
  if (question_.call >= 0) return find_call();
  if (page_->observed_address != 0) {
    auto found = find_writes(page_->observed_address, page_->observed_width);
    const auto own = [](const Finding& one) { return one.line() != nullptr; };
    if (std::ranges::any_of(found, own)) return found;
  }
  return find_last();
}

}  // namespace fsdp
