#pragma once

#include <base/torch.h>

#include <vector>

namespace fsdp {

// Returns summand `number` of a sum, [numel]. In most tests this is the input of rank `number`. The
// values are such that the last bits of a sum of several summands depend on the order of the
// additions.
inline at::Tensor part(int number, int64_t numel = 100) {
  constexpr double scales[] = {1.1, 3.0, -0.7, 0.3, -2.9};
  return at::arange(numel, at::kFloat)
      .mul_(0.001)
      .add_(1)
      .mul_(scales[number % 5])
      .add_(0.1 * number);
}

inline std::vector<at::Tensor> parts(int count, int64_t numel = 100) {
  std::vector<at::Tensor> all;
  for (int i = 0; i < count; ++i)
    all.push_back(part(i, numel));
  return all;
}

// Returns the sum of the 1 to 8 tensors in `p` in the order of the tree sum, which is written out
// for each number of tensors: ((0 + 1) + (2 + 3)) + 4 for five.
inline at::Tensor sum_by_hand(const std::vector<at::Tensor>& p) {
  switch (p.size()) {
    case 1:
      return p[0];
    case 2:
      return p[0] + p[1];
    case 3:
      return (p[0] + p[1]) + p[2];
    case 4:
      return (p[0] + p[1]) + (p[2] + p[3]);
    case 5:
      return ((p[0] + p[1]) + (p[2] + p[3])) + p[4];
    case 6:
      return ((p[0] + p[1]) + (p[2] + p[3])) + (p[4] + p[5]);
    case 7:
      return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + p[6]);
    default:
      return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
  }
}

}  // namespace fsdp
