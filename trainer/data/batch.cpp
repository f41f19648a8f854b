#include <data/batch.h>

#include <stdexcept>
#include <string>

namespace fsdp {

Batch Batch::part(int index, int parts) const {
  const int64_t rows = inputs.size(0);
  if (parts < 1 || index < 0 || index >= parts || rows % parts != 0) {
    throw std::invalid_argument("a batch of " + std::to_string(rows) + " rows has no part " +
                                std::to_string(index) + " of " + std::to_string(parts) +
                                ": the global batch must be a multiple of the number of parts");
  }
  const int64_t share = rows / parts;
  return {inputs.narrow(0, index * share, share), targets.narrow(0, index * share, share)};
}

Batch Batch::to(c10::DeviceType device) const {
  return {on_device(inputs, device), on_device(targets, device)};
}

// From pinned memory, which its allocator does not give out again before it was read.
at::Tensor on_device(const at::Tensor& tensor, c10::DeviceType device) {
  if (tensor.device().type() == device) return tensor;
  return tensor.contiguous().pin_memory().to(device, tensor.scalar_type(), /*non_blocking=*/true);
}

}  // namespace fsdp
