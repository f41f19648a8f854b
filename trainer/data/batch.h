#pragma once

#include <base/torch.h>

namespace fsdp {

// A target that is not asked for: no loss counts it. LibTorch's ignore_index.
inline constexpr int64_t kNotAsked = -100;

// Token ids. Position t of `targets` is the token that follows position t of `inputs`.
struct Batch {
  at::Tensor inputs;   // [batch, seq] int64
  at::Tensor targets;  // [batch, seq] int64; kNotAsked where a row asks for nothing

  // The rows of one of `parts` equal parts. Throws std::invalid_argument if the rows cannot be cut
  // into equal parts.
  Batch part(int index, int parts) const;

  // The same batch on `device`. The CPU does not wait for the copy.
  Batch to(c10::DeviceType device) const;
};

// The same of one tensor, which lies on the CPU or on `device`.
at::Tensor on_device(const at::Tensor& tensor, c10::DeviceType device);

}  // namespace fsdp
