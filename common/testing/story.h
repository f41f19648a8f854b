#pragma once

#include <string>
#include <vector>

namespace fsdp {

struct Event;

// What a rank did, as one line: "issues all_gather blocks0, 352 bytes". It holds no times, so ranks
// that did the same have the same lines. Empty for a flight (issue to wait), which is no step.
std::string step_of(const Event& event);

// The steps of all ranks in one numbered table with a column for the rank, which is "all" where
// every rank did the same. Of more than `shown` steps it shows the last ones.
std::string story(const std::vector<std::vector<std::string>>& ranks, size_t shown = 16);

}  // namespace fsdp
