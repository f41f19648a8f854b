#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

struct Event;

// Returns what a rank did, as one line: "issues all_gather blocks0, 352 bytes". The line has no
// times, so ranks that did the same have the same lines. Empty for a flight (issue to wait), which
// is not a step.
std::string step_of(const Event& event);

// The place where a story goes wrong: the index of a step, and the remark to print below it.
struct StoryPlace {
  size_t step;
  std::string remark;
};

// `actual`: a list of collectives that was observed after `steps`; `expected`: the list that it
// should be. Returns the step that issued the first collective that differs; nothing if no step can
// be found.
std::optional<StoryPlace> place_of_call(const std::vector<std::string>& steps,
                                        const nlohmann::json& actual,
                                        const nlohmann::json& expected);

// Returns the steps of all ranks in one numbered table. Its column for the rank is "all" if every
// rank did the same. If there are more than `shown` steps, the table has the last step and the
// steps around `place`; without a place, those around the first step in which ranks differ, else
// the last steps. Empty if the ranks only observed.
std::string story(const std::vector<std::vector<std::string>>& ranks,
                  const std::optional<StoryPlace>& place = {}, size_t shown = 16);

}  // namespace fsdp
