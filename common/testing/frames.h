#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace fsdp {

// A value as bytes that can be sent: its length in 8 bytes, then the value in CBOR.
std::vector<uint8_t> to_frame(const nlohmann::json& value);

// The value of a frame without its length. Throws nlohmann::json::exception if these bytes are no
// CBOR, or a value in a value and so on for more than 100: to read such a one takes a stack that
// others choose.
nlohmann::json from_frame(const uint8_t* bytes, uint64_t length);

// Writes all of `frame` to `file`. Returns false, with the reason in errno, if it cannot.
bool write_frame(int file, const std::vector<uint8_t>& frame);

}  // namespace fsdp
