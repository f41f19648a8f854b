#pragma once

#include <launch/hosts.h>

#include <string>
#include <vector>

namespace fsdp {

// Returns a line of text that is the same in all processes of one host, and different on different
// hosts.
std::string host_identity();

// Returns on which hosts the ranks of the run are. `identities` has the host_identity() of each
// rank, by rank.
Hosts find_hosts(const LaunchedRank& self, const std::vector<std::string>& identities);

// Returns the local address from which packets to `host` are sent, by which `host` also reaches
// this host. Throws std::runtime_error if the name is unknown or there is no route.
std::string address_towards(const std::string& host);

}  // namespace fsdp
