#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace fsdp {

// A value as bytes that can be sent: its length in 8 bytes, then the value in CBOR.
std::vector<uint8_t> to_frame(const nlohmann::json& value);

// Writes all of `frame` to `file`. Returns false, with the reason in errno, if it cannot.
bool write_frame(int file, const std::vector<uint8_t>& frame);

}  // namespace fsdp
