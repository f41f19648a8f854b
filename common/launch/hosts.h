#pragma once

#include <comm/group.h>
#include <launch/launched.h>

#include <string>
#include <vector>

namespace fsdp {

// On which hosts the ranks of a run are. A host is where processes share memory and see one
// another: a machine, or a container.
struct Hosts {
  std::vector<int> of_rank;        // [world_size] 0, 1, 2, ... in the order of their lowest ranks
  std::vector<std::string> names;  // by host; each is another
  LaunchedRank self;               // of this process: it names the store
  std::string address;             // of this host, by which it reaches the store

  // Of `ranks` alone, ascending, which are 0, 1, 2, ... from now on; `self` is one of them.
  Hosts subset(const std::vector<int>& ranks, const LaunchedRank& self) const;

  bool several() const { return names.size() > 1; }
  int this_host() const { return of_rank.at(static_cast<size_t>(self.rank)); }
  std::vector<int> ranks_of(int host) const;  // ascending
  bool within_one(const Group& group) const;  // whether all its ranks are on one host
  std::string name_of(int rank) const;        // "host-b"
  // "host-a: ranks 0 to 3; host-b: ranks 4 to 7"
  std::string text() const;
};

}  // namespace fsdp
