#pragma once

#include <base/torch.h>
#include <comm/ledger.h>
#include <launch/rank_context.h>

// The declarations of gloo it includes come from gloo_declarations/.
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <chrono>

namespace fsdp {

// Connects the ranks of the ledger's group over gloo, for `purpose`, of which there may be several.
// Sockets are on the loopback address where all ranks are on one host, else on the address by which
// this host reaches the store, or of the interface GLOO_SOCKET_IFNAME. `timeout` limits every wait
// for another rank. Throws CollectiveError, which names a rank that has gone, if the ranks can't be
// connected, and std::runtime_error if this process may not open as many files.
c10::intrusive_ptr<c10d::ProcessGroupGloo> connect_gloo(const RankContext& context, Ledger& ledger,
                                                        const std::string& purpose,
                                                        std::chrono::milliseconds timeout);

}  // namespace fsdp
