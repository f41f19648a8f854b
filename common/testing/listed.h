#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// Returns the parts of an observation that is a list: a text like "all_gather root; all_gather h.0;
// " or "root | root h.0 | ", or an array. Returns no parts if the observation is not a list.
std::vector<nlohmann::json> listed(const nlohmann::json& observation);

// Returns the index of the first part in which the lists `one` and `other` differ. If the longer
// list begins with the shorter one, returns the length of the shorter one.
size_t first_difference(const std::vector<nlohmann::json>& one,
                        const std::vector<nlohmann::json>& other);

}  // namespace fsdp
