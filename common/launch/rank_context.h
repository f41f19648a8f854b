#pragma once

#include <launch/hosts.h>

#include <memory>
#include <vector>

namespace fsdp {

class Handover;
class SharedRegion;

// Tells a rank about itself and the other ranks. The process that forks the rank fills it in.
struct RankContext {
  int rank{};                            // this rank's number in the world
  int world_size{1};                     // W: the number of ranks in the world
  std::shared_ptr<SharedRegion> shared;  // memory that the ranks of this host share
  // The hosts of all ranks. Null: all ranks are on this host, and one process has forked them.
  std::shared_ptr<const Hosts> hosts{};
  // The state that this rank takes over from a former rank, and where it saves its own if a host is
  // lost (hosts/handover.h). Null: no new rank may continue for this one.
  const Handover* handover{};

  // Returns whether all ranks of `group` are on one host.
  bool on_one_host(const Group& group) const { return !hosts || hosts->within_one(group); }
  std::vector<int> local_ranks() const;  // the ranks of this host, ascending
  int local_rank() const;                // this rank's position in local_ranks(): 0, 1, 2, ...
};

}  // namespace fsdp
