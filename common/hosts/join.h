#pragma once

#include <hosts/store_client.h>
#include <launch/hosts.h>
#include <launch/launched.h>
#include <launch/shared_region.h>

#include <memory>

namespace fsdp {

// What a started rank has when all have come.
struct JoinedRun {
  std::unique_ptr<StoreServer> store;  // of rank 0, unless the launcher hosts the store
  std::shared_ptr<const Hosts> hosts;
  std::shared_ptr<SharedRegion>
      shared;  // with the ranks of this host; it has a place for all ranks
};

// Waits until all ranks have come. If that takes longer than `self.announce_after`, says once by
// `tell` for whom it waits. Calls torch only in processes of their own, so the caller may fork
// afterwards. Throws std::runtime_error, which names the rank, the store and the rank that has not
// come.
JoinedRun join(const LaunchedRank& self, const StoreClientProcess::Log& tell = {});

// After the loss of a host: the same for those that go on, `ranks`, one of which this process has.
// They are 0, 1, 2, ... from now on. The store is the same. If another rank of this host does not
// come, it is lost as well: returns why, and `joined` is what it takes to say so (exit_protocol.h).
std::string rejoin(JoinedRun& joined, const std::vector<int>& ranks,
                   const StoreClientProcess::Log& tell);

}  // namespace fsdp
