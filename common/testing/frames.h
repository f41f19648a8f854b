#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace fsdp {

// A value as bytes that can be sent: its length in 8 bytes, then the value in CBOR.
std::string to_frame(const nlohmann::json& value);

// `text`, or its first 64 KiB and a line that tells its size.
std::string shortened(std::string_view text);

// The value of a frame without its length; its texts are shortened(). Throws
// nlohmann::json::exception if these bytes are no CBOR, or a value in a value and so on for more
// than 100: to read such a one takes a stack that others choose.
nlohmann::json from_frame(std::string_view bytes);

}  // namespace fsdp
