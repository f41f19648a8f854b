#pragma once

#include <hosts/store_client.h>
#include <launch/hosts.h>
#include <launch/launched.h>
#include <launch/shared_region.h>

#include <memory>

namespace fsdp {

// The objects that join() makes for a launched rank, after all ranks have joined.
struct JoinedRun {
  // The server of the store, on rank 0 only; null on other ranks, or if the launcher hosts the
  // store.
  std::unique_ptr<StoreServer> store;
  std::shared_ptr<const Hosts> hosts;
  // The memory that the ranks of this host share. It has room for every rank of the world.
  std::shared_ptr<SharedRegion> shared;
};

// Waits until all ranks have joined. If that takes longer than `self.announce_after`, reports once
// through `log` which ranks are missing. Calls torch only in child processes, so that the caller
// can still fork. Throws std::runtime_error, which names this rank, the store and the missing rank.
JoinedRun join(const LaunchedRank& self, const StoreClientProcess::Log& log = {});

// After a host was lost, connects the surviving `ranks` again, through the same store, and numbers
// them 0, 1, 2, ... The rank of this process must be one of `ranks`. If another surviving rank of
// this host does not arrive, this host counts as lost too: then rejoin() returns the reason, and
// `joined` has what ExitProtocol needs to report it. Otherwise returns an empty text.
std::string rejoin(JoinedRun& joined, const std::vector<int>& ranks,
                   const StoreClientProcess::Log& log);

}  // namespace fsdp
