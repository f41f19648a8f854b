#include <testing/ratio.h>

#include <cmath>
#include <cstdint>
#include <sstream>

namespace fsdp {
namespace {

constexpr double kRounding = 1e-6;  // relative error that counts as rounding

struct Fraction {
  double above, below;
};

// Returns the first of these that equals `factor` up to rounding: a whole number, a fraction of two
// small whole numbers, a fraction 1/n. Returns 0/0 if none does.
Fraction fraction(double factor) {
  constexpr int kMostBelow = 16;  // largest denominator: twice the largest number of ranks
  const auto is = [&](double above, double below) {
    return above != 0 && std::abs(factor * below - above) <= kRounding * std::abs(above);
  };
  for (int below = 1; below <= kMostBelow; ++below) {
    const double above = std::round(factor * below);
    if ((below == 1 || std::abs(above) <= 4 * kMostBelow) && is(above, below))
      return {above, static_cast<double>(below)};
  }
  const double below = std::round(1 / factor);
  return is(1, below) ? Fraction{1, below} : Fraction{};
}

// Returns the factor by which the expected values must be multiplied to give the actual ones, if it
// is the same for all elements up to rounding; else NaN. Elements of which both values are zero are
// skipped.
double common_factor(const std::vector<double>& actual, const std::vector<double>& expected) {
  double factor = NAN;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i], e = expected[i];
    if (e == 0 && a == 0) continue;
    if (std::isnan(factor)) factor = a / e;
    if (!std::isfinite(factor) || !(std::abs(a - factor * e) <= kRounding * std::abs(a)))
      return NAN;
  }
  return factor;
}

}  // namespace

std::string ratio_in_words(const std::vector<double>& actual, const std::vector<double>& expected) {
  const double factor = common_factor(actual, expected);
  const std::string every = actual.size() == 1 ? "it is " : "every element is ";
  if (std::isnan(factor)) return "";
  if (factor == 0) {
    return every + "0" +
           (actual.size() == 1 ? ""
                               : ": the operation that fills in the values was left out, or ran "
                                 "before they were there; see the last steps above");
  }
  if (std::abs(factor - 1) <= kRounding) {
    return every +
           "right except for rounding: the same sum in another order, or x times 1/W in place of "
           "x divided by W, gives other last bits";
  }
  const auto [above, below] = fraction(factor);
  bool exact = below != 0;
  for (size_t i = 0; i < actual.size() && exact; ++i)
    exact = actual[i] * below == expected[i] * above;
  std::ostringstream out;
  out << every << (exact ? "exactly " : "about ");
  if (below == 0) {
    out << factor;
  } else {
    out << above;
    if (below != 1) out << '/' << below;
  }
  out << " times the expected one";
  return out.str();
}

}  // namespace fsdp
