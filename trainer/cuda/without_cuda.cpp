#include <cuda/gpu.h>

#include <stdexcept>

namespace fsdp::gpu {

bool built() {
  return false;
}

int count_gpus() {
  return 0;
}

int count_gpus_before_fork() {
  return 0;
}

void use_gpu_of(int rank) {
  throw std::runtime_error("rank " + std::to_string(rank) +
                           " found no GPU: this build has no CUDA");
}

std::optional<AllocatorStats> allocator_stats() {
  return std::nullopt;
}

NoWaiting::NoWaiting() = default;
NoWaiting::~NoWaiting() = default;

}  // namespace fsdp::gpu
