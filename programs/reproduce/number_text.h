#pragma once

#include <string>

namespace fsdp {

// "7.11157274": with `digits` decimals.
std::string fixed(double value, int digits);

// "1e-08", or "0".
std::string scientific(double value);

constexpr double kTolerance = 1e-6;  // relative: of losses and sums, from published ones

// |value - expected| / |expected|
double relative_difference(double value, double expected);

}  // namespace fsdp
