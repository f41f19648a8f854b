#pragma once

#include <chrono>

namespace fsdp {

// How long a rank waits for another one if nothing else is said.
inline constexpr std::chrono::milliseconds kDefaultTimeout{300'000};

}  // namespace fsdp
