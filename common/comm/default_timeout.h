#pragma once

#include <chrono>

namespace fsdp {

// The default time limit of each wait for another rank: 300 s.
inline constexpr std::chrono::milliseconds kDefaultTimeout{300'000};

}  // namespace fsdp
