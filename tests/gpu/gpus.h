#pragma once

#include <comm/communicator.h>
#include <cuda/gpu.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace fsdp {

// "needs 8 GPUs; this machine has 1", or nothing if they are there.
inline std::string missing_gpus(int needed) {
  const int gpus = gpu::count_gpus_before_fork();
  if (gpus >= needed) return "";
  return "needs " + std::to_string(needed) + (needed == 1 ? " GPU; " : " GPUs; ") +
         (gpu::built() ? "this machine has " + std::to_string(gpus) : "this build has no CUDA");
}

// Skips the running test where GPUs are missing. Its suite is named after what it needs: Needs1GPU,
// Needs2GPUs, Needs8GPUs.
#define SKIP_WITHOUT_GPUS(needed) \
  if (const std::string missing = missing_gpus(needed); !missing.empty()) GTEST_SKIP() << missing

// How `body` ends on `world_size` ranks, each with its GPU: nothing if well, else the failure.
inline std::string on_gpus(int world_size, const CommunicatorOptions& options,
                           const std::function<void(Communicator&)>& body) {
  const LaunchResult result = launch(world_size, [&](const RankContext& context) {
    gpu::use_gpu_of(context.local_rank());
    CommunicatorOptions on_cuda = options;
    on_cuda.device = c10::kCUDA;
    const auto comm = Communicator::create(context, on_cuda);
    body(*comm);
    return 0;
  });
  return result.ok() ? "" : result.ranks[static_cast<size_t>(result.first_failure)].text();
}

// For ranks: the test reads the message from how the rank ended.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace fsdp
