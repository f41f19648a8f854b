#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <common/collectives.h>
#include <common/expect_text.h>
#include <common/shared_words.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <testing/channel.h>
#include <testing/multi_rank.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <set>
#include <sstream>

#include "ranks_on_hosts.h"

namespace fsdp {
namespace {

std::shared_ptr<Communicator> communicator(const RankContext& context, int shard_size,
                                           std::optional<Fault> fault = {}) {
  return Communicator::create_hybrid(context, {.timeout = kLimit, .fault = fault}, shard_size);
}

Body collectives(std::vector<Channel>& channels, int shard_size) {
  return [&channels, shard_size](const RankContext& context) {
    send_collectives(*communicator(context, shard_size), context.rank,
                     channels[static_cast<size_t>(context.rank)]);
    return 0;
  };
}

TEST_F(MultiHostRun, ranks_on_several_hosts_compute_the_bits_of_ranks_on_one_host) {
  Network network(2);
  for (const int world : {2, 4}) {
    for (const int shard_size : {world, world / 2}) {
      std::vector<Channel> here(static_cast<size_t>(world)), there(static_cast<size_t>(world));
      ASSERT_TRUE(launch(world, collectives(here, shard_size)).ok());
      start(network, world, collectives(there, shard_size));
      EXPECT_EQ(ended(), std::vector<int>(static_cast<size_t>(world), 0)) << said_.text();
      for (size_t rank = 0; rank < there.size(); ++rank) {
        ASSERT_EQ(there[rank].frames().size(), 4u);
        EXPECT_EQ(there[rank].frames(), here[rank].frames()) << "rank " << rank;
      }
    }
  }
}

TEST_F(MultiHostRun, ranks_compute_the_same_bits_over_a_slow_and_lossy_network) {
  Network network(2, {.delay = 5ms, .loss = 0.01});
  std::vector<Channel> here(2), there(2);
  ASSERT_TRUE(launch(2, collectives(here, 2)).ok());
  start(network, 2, collectives(there, 2));
  EXPECT_EQ(ended(), std::vector<int>(2, 0)) << said_.text();
  for (size_t rank = 0; rank < 2; ++rank)
    EXPECT_EQ(there[rank].frames(), here[rank].frames());
}

TEST_F(MultiHostRun, ranks_use_shared_memory_only_with_ranks_of_their_own_host) {
  Network network(2);
  start(network, 4, [](const RankContext& context) {
    const auto comm = communicator(context, 2);
    const bool right = comm->backend() == "shm" && comm->replicas()->backend() == "gloo" &&
                       context.local_rank() == context.rank % 2;
    const auto of_all = communicator(context, 4);
    // If a rank ended before all ranks are connected, it would close its connections, and the other
    // ranks would fail. So all ranks wait for each other here.
    all_gather(*of_all, "all are connected");
    return right && of_all->backend() == "gloo" ? 0 : 3;
  });
  EXPECT_EQ(ended(), std::vector<int>(4, 0)) << said_.text();
}

// Returns a body that issues six all-gathers in each group. If `before_the_fourth` is given, every
// rank runs it before its fourth all-gather.
Body gathers(int shard_size, std::optional<Fault> fault,
             const std::function<void(const RankContext&)>& before_the_fourth = {}) {
  return [=](const RankContext& context) {
    const auto comm = communicator(context, shard_size, fault);
    for (int i = 0; i < 6; ++i) {
      if (i == 3 && before_the_fourth) before_the_fourth(context);
      const std::string unit = "layers." + std::to_string(i);
      all_gather(*comm, unit);
      if (shard_size < 4) all_gather(*comm->replicas(), unit);
    }
    return 0;
  };
}

TEST_F(MultiHostRun, a_collective_that_a_rank_skips_is_reported_once_for_all_hosts) {
  Network network(2);
  start(network, 4, gathers(4, Fault{Fault::Kind::skip, 2, 3}));
  expect_story({"collective #3 differs", "ranks 0, 1 and 3", "all_gather layers.4",
                "host-a: ranks 0, 1; host-b: ranks 2, 3"});
}

TEST_F(MultiHostRun, a_killed_rank_is_reported_once_for_all_hosts) {
  for (const int rank : {0, 3}) {
    for (const int shard_size : {4, 2}) {
      said_.clear();
      Network network(2);
      start(network, 4,
            gathers(shard_size, Fault{Fault::Kind::kill, rank, shard_size == 4 ? 3u : 5u}));
      expect_story({"rank " + std::to_string(rank) + (rank == 0 ? " on host-a" : " on host-b") +
                    " was killed by signal 9 (Killed) after collective #2 all_gather layers.2"});
    }
  }
}

TEST_F(MultiHostRun, a_rank_that_throws_is_reported_once_for_all_hosts) {
  Network network(2);
  start(network, 4, gathers(4, {}, [](const RankContext& context) {
          if (context.rank == 3) throw std::runtime_error("the disk is full");
        }));
  expect_story({"rank 3 on host-b failed: the disk is full"});
}

TEST_F(MultiHostRun, a_stuck_rank_is_reported_once_for_all_hosts) {
  Network network(2);
  start(network, 4, gathers(4, {}, [](const RankContext& context) {
          while (context.rank == 3)
            pause();
        }));
  expect_story({"all_gather layers.3 (collective #3) is not complete: rank 3 has not called it",
                "its last call was #2 all_gather layers.2", "host-b: ranks 2, 3"});
}

TEST_F(MultiHostRun, a_rank_that_ends_early_is_reported_once_for_all_hosts) {
  Network network(2);
  start(network, 4, [](const RankContext& context) {
    const auto comm = communicator(context, 4);
    all_gather(*comm, "layers.0");
    if (context.rank != 3) all_gather(*comm, "layers.1");
    return 0;
  });
  const auto statuses = ended();
  EXPECT_EQ(statuses[3], 0);
  EXPECT_EQ(count("program: ", said_.text()), 1) << said_.text();
  EXPECT_CONTAINS(said_.text(), "rank 3 has ended with status 0 after collective #0 all_gather");
}

// Returns a body that counts in come[0] the ranks that have reached their fourth all-gather. Rank 3
// pauses before this all-gather for ever, so the other ranks wait in it.
Body gathers_until(SharedWords& come) {
  return gathers(4, {}, [&](const RankContext& context) {
    ++come[0];
    while (context.rank == 3)
      pause();
  });
}

TEST_F(MultiHostRun, a_network_partition_is_reported_once_on_each_side) {
  Network network(2);
  SharedWords come;
  start(network, 4, gathers_until(come));
  wait_until(come[0], 4);
  network.cut(1);
  const auto begin = std::chrono::steady_clock::now();
  ended();
  EXPECT_LE(std::chrono::steady_clock::now() - begin, kLimit + kToEnd);
  EXPECT_CONTAINS(said_.text(),
                  "all_gather layers.3 (collective #3) is not complete: rank 2 does "
                  "not answer (its host is down, or cut off)");
  EXPECT_CONTAINS(said_.text(), "host-b can't reach the store at 10.77.0.1:29400 on host-a");
  EXPECT_EQ(count("program: ", said_.text()), 2) << said_.text();
}

TEST_F(MultiHostRun, a_host_that_goes_down_is_reported_once_by_the_other_hosts) {
  for (const int host : {1, 0}) {
    said_.clear();
    Network network(2);
    SharedWords come;
    start(network, 4, gathers_until(come));
    wait_until(come[0], 4);
    network.end(host);
    const auto begin = std::chrono::steady_clock::now();
    ended();
    EXPECT_LE(std::chrono::steady_clock::now() - begin, kLimit + kToEnd);
    EXPECT_EQ(count("program: ", said_.text()), 1) << said_.text();
    EXPECT_CONTAINS(said_.text(), host == 1 ? "rank 2 does not answer (its host is down"
                                            : "host-b can't reach the store at 10.77.0.1");
  }
}

// Returns the local addresses, in hexadecimal, of the listening sockets of this network namespace.
std::set<std::string> listening() {
  std::set<std::string> addresses;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      if (state == "0A") addresses.insert(local.substr(0, local.find(':')));
    }
  }
  return addresses;
}

TEST_F(MultiHostRun, ranks_listen_only_on_the_address_through_which_they_reach_the_store) {
  Network network(2);
  std::vector<Channel> channels(4);
  start(network, 4, [&](const RankContext& context) {
    const auto comm = communicator(context, 2);
    const auto world = communicator(context, 4);
    world->barrier("all are connected").wait();
    for (const std::string& address : listening())
      channels[static_cast<size_t>(context.rank)].send(address);
    world->barrier("all have looked").wait();
    return 0;
  });
  EXPECT_EQ(ended(), std::vector<int>(4, 0)) << said_.text();
  for (size_t rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(channels[rank].frames().size(), 1u);
    EXPECT_EQ(channels[rank].frames()[0], rank < 2 ? "01004D0A" : "02004D0A");
  }
}

TEST_F(MultiHostRun, a_rank_that_the_run_does_not_need_waits_until_the_run_ends) {
  Network network(2);
  for (const int code : {0, 5}) {
    said_.clear();
    for (int rank = 0; rank < 3; ++rank)
      start_rank(network, rank / 2, rank, 3, 2, [=](const RankContext&) { return code; });
    const auto statuses = ended();
    EXPECT_CONTAINS(said_.text(), "program: rank 2 is spare: this run uses 2 of the 3 ranks");
    EXPECT_EQ(WEXITSTATUS(statuses[2]), code == 0 ? 0 : 1);
  }
}

TEST_F(MultiHostRun, an_error_names_a_master_addr_that_is_no_address_of_the_host) {
  Network network(1);
  start_rank(
      network, 0, 0, 2, 2, [](const RankContext&) { return 0; }, "10.77.0.9");
  EXPECT_EQ(WEXITSTATUS(ended()[0]), 1);
  EXPECT_CONTAINS(said_.text(), "MASTER_ADDR=10.77.0.9 is not an address of this host");
}

}  // namespace
}  // namespace fsdp
