#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

// Functions that read JSON from untrusted files.
namespace fsdp {

// Parses `text` and returns the JSON object. Throws std::runtime_error
// - "is no JSON object" if `text` is not a JSON object;
// - if it is nested more than 100 deep, because copying it could overflow the stack;
// - if an object of an ordered_json has more than 1000 members, because looking them up would take
//   so long that the program would seem to hang.
template <typename Json>
Json read_json_object(std::string_view text);

// Returns `number`, a count of steps, bytes or elements. Throws std::runtime_error if `number` is
// not a whole number from 0 to 2^63 - 1.
template <typename Json>
int64_t count_of(const Json& number);
// Returns what count_of() returns for each element of `array`. Throws what count_of() throws.
template <typename Json>
std::vector<int64_t> counts_of(const Json& array);

// Returns the product of sizes, or nothing if it is too large for an int64.
std::optional<int64_t> product(const std::vector<int64_t>& sizes);

}  // namespace fsdp
