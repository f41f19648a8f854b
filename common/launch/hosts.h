#pragma once

#include <comm/group.h>
#include <launch/launched.h>

#include <string>
#include <vector>

namespace fsdp {

// The hosts of the ranks of a run. Processes are on one host if they can share memory and see one
// another: on one machine, or in one container.
struct Hosts {
  // For each rank, the number of its host. The hosts are numbered 0, 1, ... in the order of their
  // lowest ranks.
  std::vector<int> of_rank;
  std::vector<std::string> names;  // names of the hosts, by number of the host; no two are equal
  LaunchedRank self;               // the rank of this process, and where the store is
  std::string address;             // this host's address, from which it reaches the store

  // Returns the hosts of a run that has only `ranks` (ascending). The ranks are numbered anew from
  // 0 in their old order, and the hosts are numbered anew in the order of their lowest ranks.
  // `self` is this process, with its new rank.
  Hosts subset(const std::vector<int>& ranks, const LaunchedRank& self) const;

  bool several() const { return names.size() > 1; }
  // Returns the number of this process's host.
  int this_host() const { return of_rank.at(static_cast<size_t>(self.rank)); }
  std::vector<int> ranks_of(int host) const;  // the ranks on `host`, ascending
  bool within_one(const Group& group) const;  // whether all ranks of the group are on one host
  std::string name_of(int rank) const;        // name of the host of `rank`: "host-b"
  // Returns all hosts with their ranks, for messages: "host-a: ranks 0 to 3; host-b: ranks 4 to 7".
  std::string text() const;
};

}  // namespace fsdp
