#pragma once

#include <base/torch.h>
#include <digest/sha256.h>

#include <string>

namespace fsdp {

// Sums and hash of a model's parameters, added one by one in the order of first registration.
class ParameterSummary {
 public:
  void add(const at::Tensor& parameter);  // fp32, on the CPU, contiguous

  double sum_fp32() const { return sum_fp32_; }  // each parameter summed in fp32, added in fp64
  double sum_fp64() const { return sum_fp64_; }  // every element added in fp64
  std::string sha256() const { return hash_.hex(); }  // of the elements, fp32 little-endian

 private:
  double sum_fp32_{};
  double sum_fp64_{};
  Sha256 hash_;
};

}  // namespace fsdp
