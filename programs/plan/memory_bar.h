#pragma once

#include <memory/live_bytes.h>

#include <cstdint>
#include <optional>
#include <string>

namespace fsdp {

// Returns a bar of the bytes of each class, a letter for each, and a line that explains the letters
// and gives the bytes of a letter. The bar has at most 80 letters.
// - `memory`: of a rank. What is free is shown as dots; what lies over it follows a "|".
std::string memory_bar(const LiveBytes& bytes, std::optional<int64_t> memory);

// Returns the name of the class in texts: "activations" for MemoryClass::other.
const char* name_of(MemoryClass cls);

// Returns "80.000 GB" or, below 1 GB, "61.900 MB".
std::string bytes_text(int64_t bytes);

}  // namespace fsdp
