#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

struct Event;

// What a rank did, as one line: "issues all_gather blocks0, 352 bytes". It holds no times, so ranks
// that did the same have the same lines. Empty for a flight (issue to wait), which is no step.
std::string step_of(const Event& event);

// Where a story goes wrong: the index of a step, and what to say below it.
struct StoryPlace {
  size_t step;
  std::string remark;
};

// If `actual` is a list of collectives that was observed after `steps`, and `expected` what it
// should be: the step that issued the first collective that differs.
std::optional<StoryPlace> place_of_call(const std::vector<std::string>& steps,
                                        const nlohmann::json& actual,
                                        const nlohmann::json& expected);

// The steps of all ranks in one numbered table with a column for the rank, which is "all" where
// every rank did the same. Of more than `shown` steps it shows the last one and those around
// `place`; without a place, those around the first step in which ranks differ, or else the last.
// Empty if the ranks only observed.
std::string story(const std::vector<std::vector<std::string>>& ranks,
                  const std::optional<StoryPlace>& place = {}, size_t shown = 16);

}  // namespace fsdp
