#pragma once

#include <launch/hosts.h>

#include <memory>
#include <vector>

namespace fsdp {

class Handover;
class SharedRegion;

// Tells a rank about itself and the other ranks. The process that forks the rank fills it in.
struct RankContext {
  int rank{};                            // in the world
  int world_size{1};                     // W
  std::shared_ptr<SharedRegion> shared;  // memory that the ranks of this host share
  std::shared_ptr<const Hosts> hosts{};  // null: one process of this host has forked all ranks
  const Handover* handover{};  // hosts/handover.h; null: no other rank may replace this one

  // Returns whether all ranks of `group` are on one host.
  bool on_one_host(const Group& group) const { return !hosts || hosts->within_one(group); }
  std::vector<int> local_ranks() const;  // the ranks of this host, ascending
  int local_rank() const;                // this rank's position in local_ranks(): 0, 1, 2, ...
};

}  // namespace fsdp
