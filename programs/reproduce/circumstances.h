#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace fsdp {

// Returns the circumstances under which this process makes a report: the date, the commit (null
// outside of a clone), the machine, and the versions of the software.
nlohmann::ordered_json circumstances();

// Returns the JSON of circumstances() as a line of text.
std::string text_of_circumstances(const nlohmann::ordered_json& circumstances);

}  // namespace fsdp
