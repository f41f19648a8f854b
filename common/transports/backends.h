#pragma once

#include <comm/communicator_options.h>
#include <comm/transport.h>
#include <launch/rank_context.h>

namespace fsdp {

class Ledger;

using TransportMaker = std::shared_ptr<Transport> (*)(const RankContext& context,
                                                      std::shared_ptr<Ledger> ledger,
                                                      std::chrono::milliseconds timeout);

// What the trainer's code for CUDA (trainer/cuda/) adds to the backends. gpu::use_gpu_of() sets it.
struct CudaBackend {
  int gpus{};  // GPUs of this host; nccl needs one for each rank of the host
  TransportMaker make_nccl{};
  // Allocator of page-locked memory, which the GPU itself reads and writes.
  c10::Allocator* pinned{};
  // The tensors that nccl moves are on this device. A test without a GPU sets the CPU.
  c10::DeviceType device{c10::kCUDA};
};
// The CudaBackend of this process. It has no GPUs (gpus = 0) until gpu::use_gpu_of() sets it.
inline CudaBackend cuda_backend;

// Returns the backend that the options ask for between the ranks of `group`; for "auto" chooses
// one. Throws std::invalid_argument if the options ask for shm or a simulated link and the ranks of
// `group` are on several hosts.
std::string choose_backend(const RankContext& context, const CommunicatorOptions& options,
                           const Group& group);

// Returns which calls over `backend` are compared. For launched ranks over shm, returns
// Compare::always whatever the options say. Throws std::invalid_argument if the options leave out
// comparisons of forked ranks over shm, or of any ranks over a simulated link: shm and the link
// read data that the comparison exchanges.
Compare comparison_over(const std::string& backend, const RankContext& context,
                        const CommunicatorOptions& options);

// Makes the transport of `backend` between the ranks of ledger->group(), with copies through the
// host and a simulated link if the options ask for them. Throws std::invalid_argument if the
// backend is unknown or unavailable.
std::shared_ptr<Transport> make_transport(const std::string& backend, const RankContext& context,
                                          const std::shared_ptr<Ledger>& ledger,
                                          const CommunicatorOptions& options);

// Each make_X_transport() is defined in a file of its own, X_transport.cpp.
std::shared_ptr<Transport> make_shm_transport(const RankContext& context,
                                              std::shared_ptr<Ledger> ledger);
std::shared_ptr<Transport> make_gloo_transport(const RankContext& context,
                                               std::shared_ptr<Ledger> ledger,
                                               std::chrono::milliseconds timeout);

// Makes a transport for tensors of `device` that passes the calls to `inner`, which works on CPU
// tensors. It copies the tensors to and from memory of `staging`, and the CPU waits for each copy.
std::shared_ptr<Transport> make_staged_transport(std::shared_ptr<Transport> inner,
                                                 c10::DeviceType device, c10::Allocator* staging);

// Makes a transport that passes the calls to `inner` and completes none before the link would have
// completed it: the link moves one call at a time, in the order of issue, and starts when the last
// rank has issued the call. All ranks compute the same times.
std::shared_ptr<Transport> make_link_transport(std::shared_ptr<Transport> inner, const Link& link,
                                               std::shared_ptr<Ledger> ledger,
                                               std::shared_ptr<Clock> clock);

}  // namespace fsdp
