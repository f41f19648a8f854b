#pragma once

#include <base/torch.h>

namespace fsdp {

// Token ids: position t of `targets` is what follows position t of `inputs`.
struct Batch {
  at::Tensor inputs;   // [batch, seq] int64
  at::Tensor targets;  // [batch, seq] int64

  // The r-th of W equal parts of the rows. Throws std::invalid_argument if it can't be cut so.
  Batch part(int rank, int world_size) const;

  // The same on `device`; the CPU does not wait for the copy.
  Batch to(c10::DeviceType device) const;
};

}  // namespace fsdp
