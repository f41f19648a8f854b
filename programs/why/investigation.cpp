#include <why/investigation.h>

#include <algorithm>
#include <cstring>

namespace fsdp {
namespace {

using Deed = WatchPage::Deed;

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
  if (own.empty()) add("solutions", 0);
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

void Investigation::replay(uint64_t address, uint64_t width) {
  ++replays_;
  page_->address = address;
  page_->width = width;
  run_watched(page_, command_);
}

Finding Investigation::finding(const Deed& deed) {
  Finding found{
      deed, source_lines_.of({deed.frames.begin(), deed.frames.begin() + deed.depth}), {}};
  found.own = own_lines(found.lines, question_.task());
  return found;
}

std::vector<const Deed*> Investigation::deeds() const {
  std::vector<const Deed*> all;
  const uint64_t count = std::min<uint64_t>(page_->deeds, WatchPage::kDeeds - 1);
  for (uint64_t i = 0; i < count; ++i) {
    const Deed& deed = page_->deed[(page_->deeds - i) % WatchPage::kDeeds];
    if (deed.kind != Deed::Kind::none) all.push_back(&deed);
  }
  return all;
}

std::optional<Finding> Investigation::last_write(uint64_t address, uint64_t width,
                                                 uint64_t before) {
  replay(address, width);
  for (const Deed* deed : deeds())
    if (deed->kind == Deed::Kind::write && deed->time < before) return finding(*deed);
  return {};
}

std::vector<Finding> Investigation::find_writes(uint64_t address, uint64_t width) {
  std::vector<Finding> found;
  uint64_t before = UINT64_MAX;
  while (address != 0 && replays_ < kMostReplays) {
    const auto write = last_write(address, width, before);
    if (!write) break;
    found.push_back(*write);
    const Deed& deed = write->deed;
    if (write->line() != nullptr && !deed.copies && deed.collective[0] == 0) break;
    address = deed.sources[0];
    width = deed.widths[0];
    before = deed.since;
  }
  return found;
}

std::vector<Finding> Investigation::find_call() {
  int64_t number = 0;
  auto all = deeds();
  std::ranges::reverse(all);
  for (const Deed* deed : all)
    if (deed->kind == Deed::Kind::issue && number++ == question_.call) return {finding(*deed)};
  return {};
}

std::vector<Finding> Investigation::find_last() {
  for (const Deed* deed : deeds()) {
    Finding found = finding(*deed);
    if (deed->kind != Deed::Kind::observe && found.line() != nullptr) return {found};
  }
  return {};
}

std::vector<Finding> Investigation::find() {
  replay(0, 0);
  if (question_.call >= 0) return find_call();
  if (page_->observed_address != 0)
    return find_writes(page_->observed_address, page_->observed_width);
  return find_last();
}

}  // namespace fsdp
