#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// The parts of an observation that is a list: of a text like "all_gather root; all_gather h.0; " or
// "root | root h.0 | ", or of an array. Empty if it is no list.
std::vector<nlohmann::json> listed(const nlohmann::json& observation);

// The index of the first part that differs; the length of the shorter list if it begins the other.
size_t first_difference(const std::vector<nlohmann::json>& one,
                        const std::vector<nlohmann::json>& other);

}  // namespace fsdp
