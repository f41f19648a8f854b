#pragma once

#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <cuda/gpu.h>
#include <gtest/gtest.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>

#include <functional>
#include <string>

#include <common/rank_failure.h>

namespace fsdp {

// Returns "needs 8 GPUs; this machine has 1", for example; empty if the machine has enough GPUs.
inline std::string missing_gpus(int needed) {
  const int gpus = gpu::count_gpus_before_fork();
  if (gpus >= needed) return "";
  return "needs " + std::to_string(needed) + (needed == 1 ? " GPU; " : " GPUs; ") +
         (gpu::built() ? "this machine has " + std::to_string(gpus) : "this build has no CUDA");
}

// Skips the running test if the machine has fewer than `needed` GPUs. The name of a test's suite
// states how many GPUs the test needs, for example TrainingOn8GPUs.
#define SKIP_WITHOUT_GPUS(needed) \
  if (const std::string missing = missing_gpus(needed); !missing.empty()) GTEST_SKIP() << missing

// Launches `world_size` ranks that run `body`, each with a communicator on its GPU. Returns how the
// rank that failed first ended; empty if no rank failed.
inline std::string on_gpus(int world_size, const CommunicatorOptions& options,
                           const std::function<void(Communicator&)>& body) {
  return failure(launch(world_size, [&](const RankContext& context) {
    gpu::use_gpu_of(context.local_rank());
    CommunicatorOptions on_cuda = options;
    on_cuda.device = c10::kCUDA;
    body(*Communicator::create(context, on_cuda));
    return 0;
  }));
}

}  // namespace fsdp
