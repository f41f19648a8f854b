#pragma once

#include <memory/live_bytes.h>

#include <cstdint>
#include <optional>
#include <string>

namespace fsdp {

// Returns two lines of text: a bar of 80 characters in which each memory class has a run of its
// letter, as long as its share of the bytes; and a line that explains the letters and says how many
// bytes a letter stands for.
// - `memory`: the memory of a rank. If the bytes are fewer, dots show what is free; if they are
//   more, a "|" in the bar marks the end of the memory.
std::string memory_bar(const LiveBytes& bytes, std::optional<int64_t> memory);

// Returns the name of the memory class in texts for users: "activations" for MemoryClass::other.
const char* name_of(MemoryClass cls);

// Returns "80.000 GB" or, below 1 GB, "61.900 MB".
std::string bytes_text(int64_t bytes);

}  // namespace fsdp
