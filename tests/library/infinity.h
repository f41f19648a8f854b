#pragma once

#include <limits>

// The type of a norm that is the largest absolute value.
namespace fsdp {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace fsdp
