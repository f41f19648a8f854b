#include <testing/story.h>
#include <trace/event.h>

#include <algorithm>
#include <cstdio>

namespace fsdp {
namespace {

std::string bytes_of(const Event& event) {
  return ", " + std::to_string(event.call.bytes) + " bytes";
}

std::string row(size_t number, const std::string& who, const std::string& step) {
  char head[32];
  std::snprintf(head, sizeof head, "%4zu  %-7s ", number, who.c_str());
  return head + step + '\n';
}

}  // namespace

std::string step_of(const Event& event) {
  const std::string call = event.call.name();
  switch (event.kind) {
    case EventKind::issue:
      return "issues " + call + bytes_of(event);
    case EventKind::wait:
      return (event.ended() ? "waits for " : "waits, and goes on waiting, for ") + call;
    case EventKind::free:
      return "frees " + event.name() + bytes_of(event);
    case EventKind::forward:
    case EventKind::backward:
      return std::string(to_string(event.kind)) + " of " + event.name();
    case EventKind::step:
    case EventKind::optimizer:
      return event.text();
    case EventKind::flight:
      return "";
  }
  return "";
}

std::string story(const std::vector<std::vector<std::string>>& ranks, size_t shown) {
  size_t longest = 0;
  for (const auto& steps : ranks)
    longest = std::max(longest, steps.size());
  const size_t first = longest > shown ? longest - shown : 0;
  std::string result;
  if (first > 0) result = "  ...  " + std::to_string(first) + " steps before these\n";
  for (size_t i = first; i < longest; ++i) {
    const bool same = std::all_of(ranks.begin(), ranks.end(), [&](const auto& steps) {
      return i < steps.size() && steps[i] == ranks[0][i];
    });
    if (same) {
      result += row(i + 1, ranks.size() == 1 ? "rank 0" : "all", ranks[0][i]);
      continue;
    }
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto& steps = ranks[rank];
      if (i < steps.size()) result += row(i + 1, "rank " + std::to_string(rank), steps[i]);
    }
  }
  return result;
}

}  // namespace fsdp
