#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace fsdp {

// Returns a value as bytes that can be sent: its length in 8 bytes, then the value in CBOR.
std::string to_frame(const nlohmann::json& value);

// Returns `text` if it has at most 64 KiB; else returns its beginning and a line with its size.
std::string shortened(std::string_view text);

// Returns the value of a frame; its texts are shortened(). `bytes`: the frame without its length.
// Throws nlohmann::json::exception if `bytes` are not CBOR, or if values are nested more than 100
// deep: reading such a value could overflow the stack, and graded code may have made it.
nlohmann::json from_frame(std::string_view bytes);

}  // namespace fsdp
