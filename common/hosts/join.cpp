#include <base/text.h>
#include <comm/call_rings.h>
#include <hosts/find_hosts.h>
#include <hosts/join.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace fsdp {
namespace {

// Returns a text such as "rank 1 has not come", "ranks 1, 2 and 3 have not come" or "ranks 1 to 7
// and 9 have not come".
std::string have_not_come(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1)
      ++last;
    if (last < i + 2) last = i;
    const std::string first = std::to_string(ranks[i]);
    parts.push_back(last == i ? first : first + " to " + std::to_string(ranks[last]));
    i = last + 1;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + in_a_row(parts, "and") +
         (ranks.size() == 1 ? " has not come" : " have not come");
}
std::string has_not_come(int rank) {
  return have_not_come({rank});
}

std::string key(const char* what, int number) {
  return std::string(what) + '/' + std::to_string(number);
}

// Writes this rank's host_identity() into the store, and waits for those of the other ranks.
// Returns all identities, one line for each rank, in the order of ranks.
std::string exchange_identities(StoreRequests& requests, const LaunchedRank& self) {
  requests.set(key("identity", self.rank), host_identity());
  std::vector<std::string> keys;
  for (int rank = 0; rank < self.world_size; ++rank)
    keys.push_back(key("identity", rank));
  std::string lines;
  for (const std::string& identity : requests.get_all(keys, have_not_come))
    lines += identity + '\n';
  return lines;
}

// Returns the memory that the ranks of this host share. The lowest rank creates the memory and
// waits until the other ranks have opened it, because the name by which they open it is valid only
// while the process of the lowest rank lives.
std::shared_ptr<SharedRegion> share_memory(const Hosts& hosts, const StoreClientProcess::Log& log) {
  const LaunchedRank& self = hosts.self;
  const auto ranks = hosts.ranks_of(hosts.this_host());
  const std::string where = key("region", hosts.this_host());
  if (self.rank == ranks[0]) {
    auto region = SharedRegion::create_for_started(self.world_size);
    CallRings(region->call_rings(), Group::world(self.world_size)).set_local_ranks(ranks);
    StoreClientProcess(self, [&](StoreRequests& requests) {
      requests.set(where, region->name());
      std::vector<std::string> keys;
      for (size_t i = 1; i < ranks.size(); ++i)
        keys.push_back(key("opened", ranks[i]));
      requests.get_all(keys, [&](std::vector<int> missing) {
        for (int& one : missing)
          one = ranks[static_cast<size_t>(one) + 1];
        return have_not_come(missing);
      });
      return std::string();
    }).answer(log);
    return region;
  }
  auto region =
      SharedRegion::open(self.world_size, StoreClientProcess(self, [&](StoreRequests& requests) {
                                            return requests.get(where, has_not_come(ranks[0]));
                                          }).answer(log));
  StoreClientProcess(self, [&](StoreRequests& requests) {
    requests.set(key("opened", self.rank), "1");
    return std::string();
  }).answer(log);
  return region;
}

}  // namespace

JoinedRun join(const LaunchedRank& self, const StoreClientProcess::Log& log) {
  JoinedRun joined;
  if (self.rank == 0 && !self.launcher_hosts_store)
    joined.store = std::make_unique<StoreServer>(self);
  std::istringstream lines(StoreClientProcess(self, [&](StoreRequests& requests) {
                             return exchange_identities(requests, self);
                           }).answer(log));
  std::vector<std::string> identities;
  for (std::string line; std::getline(lines, line);)
    identities.push_back(line);
  joined.hosts = std::make_shared<Hosts>(find_hosts(self, identities));
  joined.shared = share_memory(*joined.hosts, log);
  return joined;
}

std::string rejoin(JoinedRun& joined, const std::vector<int>& ranks,
                   const StoreClientProcess::Log& log) {
  LaunchedRank self = joined.hosts->self;
  const auto place = std::find(ranks.begin(), ranks.end(), self.rank);
  self.rank = static_cast<int>(place - ranks.begin());
  self.world_size = static_cast<int>(ranks.size());
  self.spares = 0;
  self.group += "/after a loss";
  joined.hosts = std::make_shared<Hosts>(joined.hosts->subset(ranks, self));
  try {
    joined.shared = share_memory(*joined.hosts, log);
  } catch (const std::runtime_error& error) {
    joined.shared = SharedRegion::create(self.world_size, 1);
    return error.what();
  }
  return "";
}

}  // namespace fsdp
