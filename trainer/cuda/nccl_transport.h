#pragma once

#include <launch/rank_context.h>
#include <transports/backends.h>

namespace fsdp {

// Returns a transport over NCCL, on a stream of its own, for tensors on this rank's GPU. No other
// rank may use the same GPU.
std::shared_ptr<Transport> make_nccl_transport(const RankContext& context,
                                               std::shared_ptr<Ledger> ledger,
                                               std::chrono::milliseconds timeout);

}  // namespace fsdp
