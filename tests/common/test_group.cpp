#include <comm/group.h>
#include <gtest/gtest.h>

namespace fsdp {
namespace {

TEST(Group,
     the_text_of_a_group_names_its_ranks_and_is_empty_for_all_ranks_of_the_first_communicator) {
  EXPECT_EQ(Group::world(8).text(), "");
  EXPECT_EQ((Group{.size = 8, .world_size = 8, .communicator = 1}.text()), " of Communicator 2");
  EXPECT_EQ(Group::shards(3, 8, 8).text(), "");
  EXPECT_EQ(Group::shards(5, 8, 4).text(), " of shard group 1 (ranks 4 to 7)");
  EXPECT_EQ(Group::shards(3, 4, 2).text(), " of shard group 1 (ranks 2, 3)");
  EXPECT_EQ(Group::shards(3, 4, 1).text(), " of shard group 3 (rank 3)");
  EXPECT_EQ(Group::replicas(6, 8, 4).text(), " of the replicas of shard 2 (ranks 2, 6)");
}

}  // namespace
}  // namespace fsdp
