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

  // Returns the sum of the elements of all parameters that were added: the sum of each parameter is
  // computed in fp32, and these sums are added in fp64.
  double sum_fp32() const { return sum_fp32_; }
  // Returns the sum of the elements of all parameters that were added, computed in fp64.
  double sum_fp64() const { return sum_fp64_; }
  // Returns the SHA-256 of the elements of all parameters that were added, as little-endian fp32.
  std::string sha256() const { return hash_.hex(); }

 private:
  double sum_fp32_{};
  double sum_fp64_{};
  Sha256 hash_;
};

}  // namespace fsdp
