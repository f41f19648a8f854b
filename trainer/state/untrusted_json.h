#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

// JSON that anybody may have written.
namespace fsdp {

// The object that `text` is. Throws std::runtime_error "is no JSON object", and if copying it could
// overflow the stack, or if its members would be looked for so long that the program seems to hang:
// it is nested more than 100 deep, or an ordered_json has an object with more than 1000 members.
template <typename Json>
Json read_json_object(std::string_view text);

// A number of steps, bytes or elements. Throws std::runtime_error if it is none, or too large.
template <typename Json>
int64_t count_of(const Json& number);
template <typename Json>
std::vector<int64_t> counts_of(const Json& array);  // nothing else is in it

// The product of sizes, or nothing if it is too large for an int64.
std::optional<int64_t> product(const std::vector<int64_t>& sizes);

}  // namespace fsdp
