#pragma once

#include <cstdint>
#include <optional>

namespace c10 {
struct Allocator;
}

// What has to be said to CUDA itself. A build without CUDA has the same functions: there are no
// GPUs.
namespace fsdp::gpu {

// Whether this build has CUDA.
bool built();

// The GPUs of this machine. A process that has asked CUDA can fork no rank that uses it: for that
// there is the second function, which asks in a process of its own.
int count_gpus();
int count_gpus_before_fork();

// To be called once by a rank, before its first tensor on CUDA: its GPU is number `rank` modulo
// count_gpus(), for this thread and for autograd's, and what the caching allocator gives out there
// is counted into live_bytes, by the bytes that were asked for. Throws std::runtime_error if there
// is no GPU.
void use_gpu_of(int rank);

// What the caching allocator says of this rank's GPU; none on the CPU.
struct AllocatorPeaks {
  int64_t allocated{};  // [bytes] in blocks, which are rounded up
  int64_t reserved{};   // [bytes] taken from the GPU, what is kept for reuse counted
};
std::optional<AllocatorPeaks> allocator_peaks();

// Of host memory that the GPU reads and writes by itself.
c10::Allocator* pinned_allocator();

// While it lives, a tensor operation that would let the CPU wait for the GPU throws instead.
class NoWaiting {
 public:
  NoWaiting();
  ~NoWaiting();  // NOLINT: trivial without CUDA alone
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;
};

}  // namespace fsdp::gpu
