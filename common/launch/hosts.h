#pragma once

#include <comm/group.h>
#include <launch/launched.h>

#include <string>
#include <vector>

namespace fsdp {

// The hosts of the ranks of a run. Processes are on one host if they can share memory and see one
// another: on one machine, or in one container.
struct Hosts {
  std::vector<int> of_rank;        // [world_size] numbers of hosts, 0, 1, ... by their lowest ranks
  std::vector<std::string> names;  // by host; no two are equal
  LaunchedRank self;               // of this process; names the store
  std::string address;             // of this host, from which it reaches the store

  // Returns the hosts of a run that has only `ranks` (ascending). The ranks are numbered anew from
  // 0 in their old order, and the hosts are numbered anew in the order of their lowest ranks.
  // `self` is this process, with its new rank.
  Hosts subset(const std::vector<int>& ranks, const LaunchedRank& self) const;

  bool several() const { return names.size() > 1; }
  // Returns the number of this process's host.
  int this_host() const { return of_rank.at(static_cast<size_t>(self.rank)); }
  std::vector<int> ranks_of(int host) const;  // ascending
  bool within_one(const Group& group) const;  // whether all ranks of the group are on one host
  std::string name_of(int rank) const;        // "host-b"
  // Returns "host-a: ranks 0 to 3; host-b: ranks 4 to 7".
  std::string text() const;
};

}  // namespace fsdp
