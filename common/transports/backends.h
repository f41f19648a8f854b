#pragma once

#include <comm/communicator_options.h>
#include <comm/transport.h>
#include <launch/rank_context.h>

namespace fsdp {

class Ledger;

using TransportMaker = std::shared_ptr<Transport> (*)(const RankContext& context,
                                                      std::shared_ptr<Ledger> ledger,
                                                      std::chrono::milliseconds timeout);

// What the module that knows CUDA adds to the backends: see gpu::use_gpu_of().
struct CudaBackend {
  int gpus{};  // of this host; nccl needs one for each of its ranks
  TransportMaker make_nccl{};
  c10::Allocator* pinned{};            // of host memory that the GPU reads and writes by itself
  c10::DeviceType device{c10::kCUDA};  // of the tensors that nccl moves; a test's is the CPU
};
inline CudaBackend cuda_backend;  // of this process; without GPUs until it is set

// The backend that the options mean between the ranks of `group`: never "auto". Throws
// std::invalid_argument if they mean shm or a simulated link, and the ranks are on several hosts.
std::string choose_backend(const RankContext& context, const CommunicatorOptions& options,
                           const Group& group);

// Which calls over this backend are compared. shm and a simulated link read what the comparison
// brings: throws std::invalid_argument if the options leave it out, but of ranks that a launcher
// has started those that share memory compare in any case.
Compare comparison_over(const std::string& backend, const RankContext& context,
                        const CommunicatorOptions& options);

// The transport of `backend` between the ranks of the ledger's group, with copies through the host
// and a simulated link as the options ask. Throws std::invalid_argument if the backend is unknown
// or unavailable.
std::shared_ptr<Transport> make_transport(const std::string& backend, const RankContext& context,
                                          const std::shared_ptr<Ledger>& ledger,
                                          const CommunicatorOptions& options);

// The transports, each in a file of its own.
std::shared_ptr<Transport> make_shm_transport(const RankContext& context,
                                              std::shared_ptr<Ledger> ledger);
std::shared_ptr<Transport> make_gloo_transport(const RankContext& context,
                                               std::shared_ptr<Ledger> ledger,
                                               std::chrono::milliseconds timeout);

// Passes the calls for tensors of `device` to `inner`, which takes tensors on the CPU: through
// copies in memory of `staging`, for which the CPU waits.
std::shared_ptr<Transport> make_staged_transport(std::shared_ptr<Transport> inner,
                                                 c10::DeviceType device, c10::Allocator* staging);

// Passes the calls to `inner`, and completes none before the link would have completed it: one at a
// time, in the order of issue, each from when the last rank has issued it. All ranks compute the
// same times.
std::shared_ptr<Transport> make_link_transport(std::shared_ptr<Transport> inner, const Link& link,
                                               std::shared_ptr<Ledger> ledger,
                                               std::shared_ptr<Clock> clock);

}  // namespace fsdp
