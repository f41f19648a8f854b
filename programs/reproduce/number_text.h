#pragma once

#include <string>

namespace fsdp {

// Returns the value with `digits` decimals: "7.11157274".
std::string fixed(double value, int digits);

// Returns the value with one significant digit: "1e-08"; "0" for 0.
std::string scientific(double value);

// The largest relative difference from the published numbers that losses and sums may have.
constexpr double kTolerance = 1e-6;

// Returns |value - expected| / |expected|.
double relative_difference(double value, double expected);

}  // namespace fsdp
