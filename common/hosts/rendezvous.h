#pragma once

#include <c10/util/intrusive_ptr.h>
#include <launch/rank_context.h>
#include <netdb.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>

namespace fsdp {

// Of the host that MASTER_ADDR names. Throws std::runtime_error if nobody knows the name.
std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses_of(const std::string& host, uint16_t port);
std::string text_of(const sockaddr* address, socklen_t length);  // "10.0.0.1"

// The store that the launcher or rank 0 hosts, with what ranks of this group have put there.
c10::intrusive_ptr<c10d::Store> store_of(const LaunchedRank& self);

// Where the ranks of `group` meet to connect for `purpose`. `timeout` limits every wait for one of
// them. Throws std::runtime_error if there is no /proc, through which the ranks of a host meet, or
// if ranks of several hosts can't reach their store.
c10::intrusive_ptr<c10d::Store> rendezvous_of(const RankContext& context, const Group& group,
                                              const std::string& purpose,
                                              std::chrono::milliseconds timeout);

}  // namespace fsdp
