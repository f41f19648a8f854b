#pragma once

#include <cstdint>
#include <optional>

// The functions that call CUDA directly. A build without CUDA has the same functions and finds no
// GPU.
namespace fsdp::gpu {

// Returns whether this build has CUDA.
bool built();

// Both functions return the number of GPUs of this machine. After count_gpus() this process can no
// longer fork ranks that use CUDA, because it has called CUDA itself. count_gpus_before_fork() asks
// CUDA in a child process, so the caller may still fork; it throws std::runtime_error if it can't
// start the child process.
int count_gpus();
int count_gpus_before_fork();

// Prepares this process to use the GPU of rank `rank`. Every rank must call it once, before its
// first tensor on CUDA. From then on
// - the GPU of this thread and of autograd's threads is number `rank` modulo count_gpus();
// - live_bytes counts the bytes that are requested from the caching allocator of this GPU;
// - Communicators of this process can use the backend nccl.
// Throws: std::runtime_error if there is no GPU.
void use_gpu_of(int rank);

// Statistics of PyTorch's caching allocator for this rank's GPU. allocator_stats() returns nothing
// on the CPU.
struct AllocatorStats {
  // Number of bytes in allocated blocks at the peak, with the rounded-up size of each block.
  int64_t peak_allocated{};
  // Number of bytes that the allocator had taken from the GPU at the peak, including free blocks
  // that the allocator keeps for reuse.
  int64_t peak_reserved{};
  // How often the allocator has taken memory from the GPU so far (cudaMalloc). The CPU waits each
  // time.
  int64_t device_allocs{};
};
std::optional<AllocatorStats> allocator_stats();

// While this object lives, a tensor operation that would make the CPU wait for the GPU throws
// instead.
class NoWaiting {
 public:
  NoWaiting();
  ~NoWaiting();  // NOLINT: trivial only without CUDA
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;
};

}  // namespace fsdp::gpu
