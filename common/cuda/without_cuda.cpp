#include <comm/transport.h>
#include <cuda/gpu.h>

#include <stdexcept>

namespace fsdp {
namespace gpu {

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

std::optional<AllocatorPeaks> allocator_peaks() {
  return std::nullopt;
}

c10::Allocator* pinned_allocator() {
  return c10::GetAllocator(c10::kCPU);
}

NoWaiting::NoWaiting() = default;
NoWaiting::~NoWaiting() = default;

}  // namespace gpu

std::shared_ptr<Transport> make_nccl_transport(const RankContext&, std::shared_ptr<Ledger>,
                                               std::chrono::milliseconds) {
  throw std::invalid_argument("backend nccl needs a CUDA build and device cuda");
}

}  // namespace fsdp
