#include <gtest/gtest.h>
#include <hosts/find_hosts.h>

#include <string>
#include <vector>

namespace fsdp {
namespace {

Hosts hosts_of(const std::vector<std::string>& identities) {
  LaunchedRank self;
  self.world_size = static_cast<int>(identities.size());
  self.host = "127.0.0.1";
  return find_hosts(self, identities);
}

TEST(FindHosts, ranks_that_report_one_host_identity_count_as_one_host) {
  const Hosts hosts = hosts_of({"a boot1", "b boot2", "a boot1", "b boot2"});
  EXPECT_EQ(hosts.of_rank, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(hosts.names, (std::vector<std::string>{"a", "b"}));
}

TEST(FindHosts, different_hosts_with_one_name_get_a_number_after_the_name) {
  const Hosts hosts = hosts_of({"a boot1", "a boot2", "b boot1", "a boot3"});
  EXPECT_EQ(hosts.of_rank, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(hosts.names, (std::vector<std::string>{"a", "a#2", "b", "a#3"}));
}

}  // namespace
}  // namespace fsdp
