#pragma once

#include <launch/hosts.h>

#include <string>
#include <vector>

namespace fsdp {

// Returns a line of text that processes of one host have in common, and no process of another.
std::string host_identity();

// Returns on which hosts the ranks are. `identities` has the host_identity() of each rank, by rank.
Hosts find_hosts(const LaunchedRank& self, const std::vector<std::string>& identities);

// The local address from which packets to `host` are sent: the one by which that host, too, reaches
// this one. Throws std::runtime_error if the name is unknown or there is no route.
std::string address_towards(const std::string& host);

}  // namespace fsdp
