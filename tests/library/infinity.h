#pragma once

#include <limits>

// The norm type for which the norm is the largest absolute value.
namespace fsdp {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace fsdp
