#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace fsdp {

// Returns the date, the commit (null outside of a clone), the machine and the versions with which
// this process makes a report.
nlohmann::ordered_json circumstances();

// Returns `circumstances` as a line of text.
std::string text_of_circumstances(const nlohmann::ordered_json& circumstances);

}  // namespace fsdp
