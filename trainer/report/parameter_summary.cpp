#include <report/parameter_summary.h>

#include <algorithm>

namespace fsdp {

void ParameterSummary::add(const at::Tensor& parameter) {
  // Number of elements that are summed at a time. It is small, because the parameters may leave no
  // memory for large temporary tensors.
  constexpr int64_t kChunk = 1 << 16;
  const at::Tensor flat = parameter.detach().contiguous().view({-1});
  sum_fp32_ += flat.sum().item<double>();
  for (int64_t begin = 0; begin < flat.numel(); begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, flat.numel());
    sum_fp64_ += flat.slice(0, begin, end).sum(at::kDouble).item<double>();
  }
  hash_.update({static_cast<const std::byte*>(flat.data_ptr()), flat.nbytes()});
}

}  // namespace fsdp
