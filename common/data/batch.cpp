#include <data/batch.h>

#include <stdexcept>
#include <string>

namespace fsdp {

Batch Batch::part(int rank, int world_size) const {
  const int64_t rows = inputs.size(0);
  if (world_size < 1 || rank < 0 || rank >= world_size || rows % world_size != 0) {
    throw std::invalid_argument("a batch of " + std::to_string(rows) + " rows has no part " +
                                std::to_string(rank) + " of " + std::to_string(world_size) +
                                ": the global batch must be a multiple of the world size");
  }
  const int64_t share = rows / world_size;
  return {inputs.narrow(0, rank * share, share), targets.narrow(0, rank * share, share)};
}

Batch Batch::to(c10::DeviceType device) const {
  if (inputs.device().type() == device) return *this;
  // From pinned memory, which its allocator does not give out again before it was read.
  const auto copy = [&](const at::Tensor& tensor) {
    return tensor.contiguous().pin_memory().to(device, tensor.scalar_type(), /*non_blocking=*/true);
  };
  return {copy(inputs), copy(targets)};
}

}  // namespace fsdp
