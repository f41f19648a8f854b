#include <comm/call_rings.h>
#include <comm/join.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace fsdp {
namespace {

std::string has_not_come(int rank) {
  return "rank " + std::to_string(rank) + " has not come";
}

std::string key(const char* what, int number) {
  return std::string(what) + '/' + std::to_string(number);
}

// Gives the other ranks this one's identity. Returns all, a line each, by rank.
std::string exchange_identities(StoreTalk& talk, const StartedRank& self) {
  talk.set(key("identity", self.rank), Hosts::identity());
  std::string lines;
  for (int rank = 0; rank < self.world_size; ++rank)
    lines += talk.get(key("identity", rank), has_not_come(rank)) + '\n';
  return lines;
}

// The lowest rank of a host makes the memory that its ranks share, and waits until they have opened
// it: the name that it gives them is gone when its process ends.
std::shared_ptr<SharedRegion> share_memory(const Hosts& hosts, const Talker::Tell& tell) {
  const StartedRank& self = hosts.self;
  const auto ranks = hosts.ranks_of(hosts.here());
  const std::string where = key("region", hosts.here());
  if (self.rank == ranks[0]) {
    auto region = SharedRegion::create_for_started(self.world_size);
    CallRings(region->call_rings(), Group::world(self.world_size)).set_ranks_here(ranks);
    Talker(self, [&](StoreTalk& talk) {
      talk.set(where, region->name());
      for (size_t i = 1; i < ranks.size(); ++i)
        talk.get(key("opened", ranks[i]), has_not_come(ranks[i]));
      return std::string();
    }).answer(tell);
    return region;
  }
  auto region =
      SharedRegion::open(self.world_size, Talker(self, [&](StoreTalk& talk) {
                                            return talk.get(where, has_not_come(ranks[0]));
                                          }).answer(tell));
  Talker(self, [&](StoreTalk& talk) {
    talk.set(key("opened", self.rank), "1");
    return std::string();
  }).answer(tell);
  return region;
}

}  // namespace

Joined join(const StartedRank& self, const Talker::Tell& tell) {
  Joined joined;
  if (self.rank == 0 && !self.hosted) joined.store = std::make_unique<StoreServer>(self);
  std::istringstream lines(
      Talker(self, [&](StoreTalk& talk) { return exchange_identities(talk, self); }).answer(tell));
  std::vector<std::string> identities;
  for (std::string line; std::getline(lines, line);)
    identities.push_back(line);
  joined.hosts = std::make_shared<Hosts>(Hosts::of(self, identities));
  joined.shared = share_memory(*joined.hosts, tell);
  return joined;
}

std::string join_again(Joined& joined, const std::vector<int>& ranks, const Talker::Tell& tell) {
  StartedRank self = joined.hosts->self;
  const auto place = std::find(ranks.begin(), ranks.end(), self.rank);
  self.rank = static_cast<int>(place - ranks.begin());
  self.world_size = static_cast<int>(ranks.size());
  self.has_spares = false;
  self.group += "/after a loss";
  joined.hosts = std::make_shared<Hosts>(joined.hosts->without_others(ranks, self));
  try {
    joined.shared = share_memory(*joined.hosts, tell);
  } catch (const std::runtime_error& error) {
    joined.shared = SharedRegion::create(self.world_size, 1);
    return error.what();
  }
  return "";
}

}  // namespace fsdp
