#include <optim/p_norm.h>

#include <cmath>
#include <stdexcept>
#include <string>

namespace fsdp {
namespace {

// A term is a whole number of 2^-62. A digit of an exact sum has 32 bits, and digit 7 counts for
// 2^-74.
constexpr double kTermsOfOne = 0x1p62;
constexpr int kDigitBits = 32;
constexpr int64_t kLowestDigit = 7;
constexpr int kBelowTerm = 74 - 62;  // bits of the lowest digit

}  // namespace

void check_norm_type(double norm_type) {
  if (norm_type > 0) return;
  throw std::invalid_argument("norm_type must be above 0, not " + std::to_string(norm_type));
}

at::Tensor largest_magnitude(const at::Tensor& tensor) {
  const at::Tensor elements = tensor.detach();
  if (elements.numel() == 0) return at::zeros({1}, elements.options().dtype(at::kDouble));
  const auto [least, most] = at::aminmax(elements);  // unlike abs(), it needs no second tensor
  return at::maximum(least.abs(), most.abs()).to(at::kDouble).reshape({1});
}

at::Tensor sum_of_powers(const at::Tensor& tensor, double norm_type, double largest) {
  const at::Tensor digits = at::zeros({kDigits}, at::kDouble);
  if (std::isfinite(norm_type) && std::isfinite(largest) && largest > 0) {
    const at::Tensor elements = tensor.detach().cpu().contiguous();
    const float* data = elements.data_ptr<float>();
    unsigned __int128 sum = 0;
    // A scalar pow: in at::pow() the last elements get other bits than those in full vectors.
    for (int64_t i = 0; i < elements.numel(); ++i)
      sum += static_cast<uint64_t>(std::pow(std::abs(data[i]) / largest, norm_type) * kTermsOfOne);
    sum <<= kBelowTerm;
    for (int64_t i = kLowestDigit; sum > 0; ++i, sum >>= kDigitBits)
      digits.data_ptr<double>()[i] = static_cast<uint32_t>(sum);
  }
  return digits.to(tensor.device());
}

double p_norm(double norm_type, double largest, const at::Tensor& sum_of_powers) {
  if (!std::isfinite(largest)) return largest;
  return largest * std::pow(value_of_sum(sum_of_powers), 1 / norm_type);  // x^0 is 1, also for 0
}

}  // namespace fsdp
