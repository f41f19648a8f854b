#include <ATen/cuda/PinnedMemoryAllocator.h>
#include <base/torch.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda/gpu.h>
#include <cuda/nccl_transport.h>
#include <memory/device_blocks.h>
#include <sys/wait.h>
#include <transports/backends.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp::gpu {
namespace {

using c10::CachingDeviceAllocator::TraceEntry;

bool in_use = false;  // whether use_gpu_of() has selected a GPU for this process

// Counts in live_bytes that a block of GPU memory was allocated or freed. PyTorch's caching
// allocator calls this function under its lock, on the thread that allocates or frees.
void follow(const TraceEntry& entry) {
  const auto* block = reinterpret_cast<const void*>(entry.addr_);
  if (entry.action_ == TraceEntry::ALLOC) {
    device_blocks::allocated(block, static_cast<int64_t>(entry.size_));
  } else if (entry.action_ == TraceEntry::FREE_REQUESTED) {
    device_blocks::freed(block);
  }
}

}  // namespace

bool built() {
  return true;
}

int count_gpus() {
  return c10::cuda::device_count();
}

int count_gpus_before_fork() {
  const pid_t child = fork();
  if (child == 0) _exit(std::min(count_gpus(), 255));
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    throw std::runtime_error("can't count the GPUs: no process can be started that counts them");
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

void use_gpu_of(int rank) {
  const int gpus = count_gpus();
  if (gpus == 0) throw std::runtime_error("rank " + std::to_string(rank) + " found no GPU");
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(rank % gpus));
  at::globalContext().lazyInitDevice(at::kCUDA);
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(follow);
  cuda_backend = {gpus, make_nccl_transport, at::cuda::getPinnedMemoryAllocator()};
  in_use = true;
}

std::optional<AllocatorStats> allocator_stats() {
  if (!in_use) return std::nullopt;
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
  return AllocatorStats{stats.allocated_bytes.at(kAll).peak, stats.reserved_bytes.at(kAll).peak,
                        stats.num_device_alloc};
}

NoWaiting::NoWaiting() {
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
}
NoWaiting::~NoWaiting() {
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
}

}  // namespace fsdp::gpu
