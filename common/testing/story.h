#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

struct Event;

// Returns a step of a rank, which is something that the rank did, as one line: "issues all_gather
// blocks0, 352 bytes". The line has no times, so ranks that did the same have the same lines.
// Returns "" for an event of EventKind::flight (the transfer of a collective), which is not a step.
std::string step_of(const Event& event);

// The place where the steps of a rank begin to be wrong: the index of a step, and the remark to
// print below it.
struct StoryPlace {
  size_t step;
  std::string remark;
};

// Finds where a rank began to issue other collectives than expected. `steps`: what the rank did;
// `actual`: the list of collectives that it observed after these steps; `expected`: the list that
// it should have observed. Returns the step that issued the first collective that differs from the
// expected one; if `actual` only ends too early, the step that issued its last collective; nothing
// if the lists are equal or empty, or if `steps` does not contain the collectives of `actual`.
std::optional<StoryPlace> place_of_call(const std::vector<std::string>& steps,
                                        const nlohmann::json& actual,
                                        const nlohmann::json& expected);

// Returns the steps of all ranks, which are what each rank did, in one numbered table. A line is
// for "all" if every rank did the same in this step, else for one rank. If there are more than
// `shown` steps, the table has the last step and the steps around `place`; without a place, those
// around the first step in which ranks differ, else the last steps. Returns "" if the ranks did
// nothing but observe.
std::string story(const std::vector<std::vector<std::string>>& ranks,
                  const std::optional<StoryPlace>& place = {}, size_t shown = 16);

}  // namespace fsdp
