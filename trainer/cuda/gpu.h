#pragma once

#include <cstdint>
#include <optional>

// What is said to CUDA itself. A build without CUDA has the same functions, and no GPUs.
namespace fsdp::gpu {

// Whether this build has CUDA.
bool built();

// The number of GPUs of this machine. A process that has asked CUDA can no longer fork a rank that
// uses CUDA; the second function may be called before the fork: it asks in a process of its own,
// and throws std::runtime_error if it cannot start one.
int count_gpus();
int count_gpus_before_fork();

// Every rank must call it once, before its first tensor on CUDA. From then on
// - its GPU is number `rank` modulo count_gpus(), for this thread and for autograd's threads;
// - what the caching allocator gives out there is counted into live_bytes, by the bytes that were
//   asked for;
// - its Communicators have the backend nccl.
// Throws std::runtime_error if there is no GPU.
void use_gpu_of(int rank);

// The caching allocator's numbers of this rank's GPU; nothing on the CPU.
struct AllocatorStats {
  int64_t peak_allocated{};  // [bytes] in blocks, which are rounded up
  int64_t peak_reserved{};   // [bytes] taken from the GPU, including what is kept for reuse
  int64_t device_allocs{};   // blocks taken from the GPU so far, each of which stops the CPU
};
std::optional<AllocatorStats> allocator_stats();

// While it lives, a tensor operation that would make the CPU wait for the GPU throws instead.
class NoWaiting {
 public:
  NoWaiting();
  ~NoWaiting();  // NOLINT: trivial only without CUDA
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;
};

}  // namespace fsdp::gpu
