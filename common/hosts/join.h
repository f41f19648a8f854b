#pragma once

#include <hosts/store_client.h>
#include <launch/hosts.h>
#include <launch/launched.h>
#include <launch/shared_region.h>

#include <memory>

namespace fsdp {

// The objects that join() makes for a launched rank, after all ranks have joined.
struct JoinedRun {
  std::unique_ptr<StoreServer> store;  // of rank 0; null if the launcher hosts the store
  std::shared_ptr<const Hosts> hosts;
  // This memory is shared with the ranks of this host. It has room for every rank of the world.
  std::shared_ptr<SharedRegion> shared;
};

// Waits until all ranks have joined. If that takes longer than `self.announce_after`, reports once
// through `log` which ranks are missing. Calls torch only in child processes, so that the caller
// can still fork. Throws std::runtime_error, which names this rank, the store and the missing rank.
JoinedRun join(const LaunchedRank& self, const StoreClientProcess::Log& log = {});

// After a host was lost, connects the surviving `ranks` again and numbers them 0, 1, 2, ... This
// process has one of them. The store stays the same. If another rank of this host does not arrive,
// this host counts as lost too: then returns the reason, and `joined` has what ExitProtocol needs
// to report it. Otherwise returns an empty text.
std::string rejoin(JoinedRun& joined, const std::vector<int>& ranks,
                   const StoreClientProcess::Log& log);

}  // namespace fsdp
