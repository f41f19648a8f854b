#include <launch/hosts.h>

#include <map>

namespace fsdp {

Hosts Hosts::subset(const std::vector<int>& ranks, const LaunchedRank& self) const {
  Hosts left;
  left.self = self;
  left.address = address;
  std::map<int, int> numbers;
  for (const int rank : ranks) {
    const int former = of_rank[static_cast<size_t>(rank)];
    const auto [at, is_new] = numbers.emplace(former, static_cast<int>(numbers.size()));
    left.of_rank.push_back(at->second);
    if (is_new) left.names.push_back(name_of(rank));
  }
  return left;
}

std::vector<int> Hosts::ranks_of(int host) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < of_rank.size(); ++rank)
    if (of_rank[rank] == host) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

bool Hosts::within_one(const Group& group) const {
  for (int rank = 1; rank < group.size; ++rank)
    if (of_rank[static_cast<size_t>(group.world_rank(rank))] !=
        of_rank[static_cast<size_t>(group.world_rank(0))])
      return false;
  return true;
}

std::string Hosts::name_of(int rank) const {
  return names[static_cast<size_t>(of_rank[static_cast<size_t>(rank)])];
}

std::string Hosts::text() const {
  std::string text;
  for (size_t host = 0; host < names.size(); ++host)
    text += (host > 0 ? "; " : "") + names[host] + ": " + listed(ranks_of(static_cast<int>(host)));
  return text;
}

}  // namespace fsdp
