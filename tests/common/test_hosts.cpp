#include <gtest/gtest.h>
#include <launch/rank_context.h>
#include <launch/shared_region.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {
namespace {

// Returns the hosts as rank `rank` sees them: a, b and c, with two ranks on each.
Hosts three_hosts(int rank) {
  Hosts hosts;
  hosts.self.rank = rank;
  hosts.self.world_size = 6;
  hosts.of_rank = {0, 0, 1, 1, 2, 2};
  hosts.names = {"a", "b", "c"};
  return hosts;
}

TEST(Hosts, a_subset_of_ranks_without_one_host_renumbers_the_other_hosts_from_0) {
  LaunchedRank self;
  self.rank = 2;
  self.world_size = 4;
  const Hosts left = three_hosts(4).subset({0, 1, 4, 5}, self);
  EXPECT_EQ(left.of_rank, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(left.names, (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(left.this_host(), 1);
}

TEST(Hosts, local_rank_counts_the_ranks_of_each_host_from_0) {
  for (int rank = 0; rank < 6; ++rank) {
    const RankContext context{rank, 6, nullptr, std::make_shared<Hosts>(three_hosts(rank))};
    EXPECT_EQ(context.local_rank(), rank % 2);
    EXPECT_EQ(context.local_ranks(), (std::vector<int>{rank - rank % 2, rank - rank % 2 + 1}));
  }
}

}  // namespace
}  // namespace fsdp
