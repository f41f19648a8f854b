#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace fsdp {

// With what a report was made: date, commit (null outside of a clone), machine and versions.
nlohmann::ordered_json circumstances();

// The same in a line of text.
std::string text_of_circumstances(const nlohmann::ordered_json& circumstances);

}  // namespace fsdp
