#pragma once

#include <string>

namespace fsdp {

// Returns the value with `digits` decimals: "7.11157274".
std::string fixed(double value, int digits);

// Returns the value with one significant digit: "1e-08"; "0" for 0.
std::string scientific(double value);

// Relative difference that losses and sums may have from the published ones.
constexpr double kTolerance = 1e-6;

// Returns |value - expected| / |expected|.
double relative_difference(double value, double expected);

}  // namespace fsdp
