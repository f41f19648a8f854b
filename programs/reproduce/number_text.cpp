#include <reproduce/number_text.h>

#include <cmath>
#include <cstdio>

namespace fsdp {

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string scientific(double value) {
  if (value == 0) return "0";
  char text[32];
  std::snprintf(text, sizeof text, "%.0e", value);
  return text;
}

double relative_difference(double value, double expected) {
  return std::abs(value - expected) / std::abs(expected);
}

}  // namespace fsdp
