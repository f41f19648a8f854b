#pragma once

#include <string>
#include <vector>

namespace fsdp {

struct Event;

// What a rank did, as a line: "issues all_gather blocks0, 352 bytes". Without times, so that ranks
// which did the same have the same lines. Empty for a flight, which lasts from an issue to a wait.
std::string step_of(const Event& event);

// The ranks' steps side by side, numbered, with a column for the rank: "all" where every rank did
// the same. Of more than `shown` the last ones.
std::string story(const std::vector<std::vector<std::string>>& ranks, size_t shown = 16);

}  // namespace fsdp
