#pragma once

#include <c10/util/intrusive_ptr.h>
#include <launch/rank_context.h>
#include <netdb.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>

namespace fsdp {

// Returns the addresses of `host`, which MASTER_ADDR names. Throws std::runtime_error if the name
// is unknown.
std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses_of(const std::string& host, uint16_t port);
// Returns the IP address in `address` as a text of numbers: "10.0.0.1".
std::string text_of(const sockaddr* address, socklen_t length);

// Connects to the store that the launcher or rank 0 hosts. Returns a store that sees only keys with
// a prefix made from self.group, which are those of the ranks of this run.
c10::intrusive_ptr<c10d::Store> store_of(const LaunchedRank& self);

// Returns the store through which the ranks of `group` connect for `purpose`, such as "bytes" or
// "calls": a group may have a connection for each. `timeout` limits every wait for one of the
// ranks. Throws std::runtime_error if there is no /proc, which the ranks of one host need, and
// c10::Error if ranks of several hosts cannot reach their store.
c10::intrusive_ptr<c10d::Store> rendezvous_of(const RankContext& context, const Group& group,
                                              const std::string& purpose,
                                              std::chrono::milliseconds timeout);

}  // namespace fsdp
