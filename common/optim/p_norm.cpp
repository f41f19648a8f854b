#include <optim/p_norm.h>

#include <cmath>
#include <stdexcept>
#include <string>

namespace fsdp {
namespace {

constexpr int kTermExponent = -62;  // sum_of_powers() rounds each term to a multiple of 2^-62

}  // namespace

void check_norm_type(double norm_type) {
  if (norm_type > 0) return;
  throw std::invalid_argument("norm_type must be above 0, not " + std::to_string(norm_type));
}

at::Tensor largest_magnitude(const at::Tensor& tensor) {
  const at::Tensor elements = tensor.detach();
  if (elements.numel() == 0) return at::zeros({1}, elements.options().dtype(at::kDouble));
  // aminmax() needs no such temporary as abs(), which would allocate a tensor as large as
  // `elements`.
  const auto [least, most] = at::aminmax(elements);
  return at::maximum(least.abs(), most.abs()).to(at::kDouble).reshape({1});
}

at::Tensor sum_of_powers(const at::Tensor& tensor, double norm_type, double largest) {
  UInt128 sum = 0;
  if (std::isfinite(norm_type) && std::isfinite(largest) && largest > 0) {
    const at::Tensor elements = tensor.detach().cpu().to(at::kFloat).contiguous();
    const float* data = elements.data_ptr<float>();
    // Uses the scalar std::pow, because at::pow() computes other bits for the last elements of a
    // tensor than for elements in full SIMD vectors.
    for (int64_t i = 0; i < elements.numel(); ++i) {
      const double term = std::pow(std::abs(data[i]) / largest, norm_type);
      sum += static_cast<uint64_t>(std::ldexp(term, -kTermExponent));
    }
  }
  return exact_sum_of(sum, kTermExponent).to(tensor.device());
}

double p_norm(double norm_type, double largest, const at::Tensor& sum_of_powers) {
  if (!std::isfinite(largest)) return largest;
  // If norm_type is infinite, the sum of powers and the exponent 1 / norm_type are 0, and
  // std::pow(0, 0) is 1. So the norm is `largest`.
  return largest * std::pow(value_of_sum(sum_of_powers), 1 / norm_type);
}

double p_norm(const std::vector<at::Tensor>& tensors, double norm_type) {
  if (norm_type == 2) {
    at::Tensor sum = at::zeros({kDigits}, at::kDouble);
    for (const at::Tensor& tensor : tensors)
      sum = sum.to(tensor.device()) + sum_of_squares(tensor);
    return std::sqrt(value_of_sum(sum));
  }
  at::Tensor all = at::zeros({1}, at::kDouble);
  for (const at::Tensor& tensor : tensors)
    all = at::maximum(all, largest_magnitude(tensor).cpu());
  const auto largest = all.item<double>();
  at::Tensor sum = at::zeros({kDigits}, at::kDouble);
  for (const at::Tensor& tensor : tensors)
    sum += sum_of_powers(tensor, norm_type, largest).cpu();
  return p_norm(norm_type, largest, sum);
}

}  // namespace fsdp
