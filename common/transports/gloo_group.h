#pragma once

#include <base/torch.h>
#include <comm/ledger.h>
#include <launch/rank_context.h>

// ProcessGroupGloo.hpp includes gloo's headers; gloo_declarations/ has declarations in their place.
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <chrono>

namespace fsdp {

// Connects the ranks of ledger.group() over gloo, for `purpose`; a group may have connections for
// several purposes.
// - Sockets are on the loopback address if all ranks are on one host, else on the interface
//   GLOO_SOCKET_IFNAME, or, if it is not set, on the address from which this host reaches the
//   store.
// - `timeout` limits every wait for another rank.
// - Throws CollectiveError, which names a rank that has ended if there is one, if the ranks cannot
//   be connected; std::runtime_error if this process may not open enough files.
c10::intrusive_ptr<c10d::ProcessGroupGloo> connect_gloo(const RankContext& context, Ledger& ledger,
                                                        const std::string& purpose,
                                                        std::chrono::milliseconds timeout);

}  // namespace fsdp
