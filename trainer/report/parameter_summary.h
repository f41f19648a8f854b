#pragma once

#include <base/torch.h>
#include <digest/sha256.h>

#include <string>

namespace fsdp {

// The sums and the SHA-256 of a model's parameters. The caller adds the parameters one by one, in
// the order of their first registration in the model.
class ParameterSummary {
 public:
  void add(const at::Tensor& parameter);  // `parameter`: fp32, on the CPU, contiguous

  // Sums each parameter in fp32, and adds these sums in fp64.
  double sum_fp32() const { return sum_fp32_; }
  double sum_fp64() const { return sum_fp64_; }  // the sum of all elements, added in fp64
  // SHA-256 of all elements, as little-endian fp32.
  std::string sha256() const { return hash_.hex(); }

 private:
  double sum_fp32_{};
  double sum_fp64_{};
  Sha256 hash_;
};

}  // namespace fsdp
