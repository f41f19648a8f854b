#include <base/text.h>
#include <testing/listed.h>
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

// Returns the lines of the table of story() for step `i`: one line if all ranks did the same, else
// one line for each rank.
std::string rows(const std::vector<std::vector<std::string>>& ranks, size_t i) {
  const bool same = std::all_of(ranks.begin(), ranks.end(), [&](const auto& steps) {
    return i < steps.size() && steps[i] == ranks[0][i];
  });
  if (same) return row(i + 1, ranks.size() == 1 ? "rank 0" : "all", ranks[0][i]);
  std::string lines;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (i < ranks[rank].size()) lines += row(i + 1, "rank " + std::to_string(rank), ranks[rank][i]);
  }
  return lines;
}

// Returns the indices of the steps of a rank that are not observations.
std::vector<size_t> actions(const std::vector<std::string>& steps) {
  std::vector<size_t> found;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].starts_with("observes ")) found.push_back(i);
  }
  return found;
}

// Returns the index of the first step in which a rank does something different from rank 0; nothing
// if no rank does. Observations are not compared.
std::optional<size_t> first_split(const std::vector<std::vector<std::string>>& ranks) {
  std::optional<size_t> first;
  for (const auto& steps : ranks) {
    const std::vector<size_t> of_0 = actions(ranks[0]), here = actions(steps);
    size_t same = 0;
    while (same < of_0.size() && same < here.size() && ranks[0][of_0[same]] == steps[here[same]])
      ++same;
    if (same == of_0.size() && same == here.size()) continue;
    const size_t split = same < here.size() ? here[same] : of_0[same];
    first = std::min(first.value_or(split), split);
  }
  return first;
}

// Returns whether the text `step` says that a rank issued `call`, which is "all_gather root" or
// only the name of a unit.
bool issues(const std::string& step, const std::string& call) {
  return step.starts_with("issues ") && step.find(' ' + call + ", ") != std::string::npos;
}

}  // namespace

std::string step_of(const Event& event) {
  const std::string call = event.call.name();
  switch (event.kind) {
    case EventKind::issue:
      return "issues " + call + bytes_of(event);
    case EventKind::wait:
      return (event.ended() ? "waits for " : "waits, and keeps waiting, for ") + call;
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

std::optional<StoryPlace> place_of_call(const std::vector<std::string>& steps,
                                        const nlohmann::json& actual,
                                        const nlohmann::json& expected) {
  const auto is = listed(actual), should_be = listed(expected);
  std::vector<size_t> issued(is.size());  // for each call, the index of the step that issued it
  size_t step = steps.size();
  for (size_t i = is.size(); i-- > 0;) {
    if (!is[i].is_string()) return {};
    do {
      if (step == 0) return {};
      --step;
    } while (!issues(steps[step], is[i].get<std::string>()));
    issued[i] = step;
  }
  const size_t first = first_difference(is, should_be);
  if (is.empty() || first == std::max(is.size(), should_be.size())) return {};
  if (first == should_be.size()) return StoryPlace{issued[first], "expected no such call here"};
  const std::string wanted =
      should_be[first].is_string() ? should_be[first].get<std::string>() : should_be[first].dump();
  if (first == is.size()) return StoryPlace{issued.back(), "expected after this: " + wanted};
  return StoryPlace{issued[first], "expected here: " + wanted};
}

std::string story(const std::vector<std::vector<std::string>>& ranks,
                  const std::optional<StoryPlace>& place, size_t shown) {
  size_t count = 0;
  bool nothing_done = true;
  for (const auto& steps : ranks) {
    count = std::max(count, steps.size());
    nothing_done = nothing_done && actions(steps).empty();
  }
  if (nothing_done) return "";
  const size_t middle = place ? place->step : first_split(ranks).value_or(count);
  const size_t begin =
      count > shown ? std::min(middle - std::min(middle, shown / 2), count - shown) : 0;
  const size_t end = std::min(begin + shown, count);
  std::string result;
  if (begin > 0)
    result = "  ...  " + counted(static_cast<int64_t>(begin), "step") + " before these\n";
  for (size_t i = begin; i < end; ++i) {
    result += rows(ranks, i);
    if (place && place->step == i) result += "      ^ " + place->remark + '\n';
  }
  if (end + 1 < count)
    result += "  ...  " + counted(static_cast<int64_t>(count - end - 1), "step") + " between\n";
  if (end < count) result += rows(ranks, count - 1);
  return result;
}

}  // namespace fsdp
