#include <comm/communicator.h>
#include <common/expect_text.h>
#include <common/set_variables.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <testing/channel.h>
#include <testing/multi_rank.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "network.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;
using Body = std::function<int(const RankContext&)>;

constexpr auto kLimit = 3s;  // of every wait for another rank
constexpr auto kToEnd = 20s;     // after that: 3 s, and more where the machine is busy

// A file in memory that processes of all hosts append to.
class Said {
 public:
  Said() : file_(memfd_create("said", 0)) { fcntl(file_, F_SETFL, O_APPEND); }
  ~Said() { close(file_); }
  Said(const Said&) = delete;
  Said& operator=(const Said&) = delete;
  int file() const { return file_; }
  void clear() { ASSERT_EQ(ftruncate(file_, 0), 0); }
  std::string text() const {
    std::string text(static_cast<size_t>(lseek(file_, 0, SEEK_END)), '\0');
    return pread(file_, text.data(), text.size(), 0) < 0 ? "" : text;
  }

 private:
  int file_;
};

int count(const std::string& part, const std::string& text) {
  int found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at)
    ++found;
  return found;
}

// Ranks on two hosts, each started by itself, as many on each host, in order.
class RanksOnHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = Network::unavailable(); !why.empty()) GTEST_SKIP() << why;
    alarm(120);
  }
  void TearDown() override { alarm(0); }

  // One of `started` ranks of a program that takes `world_size`.
  void start_rank(Network& network, int host, int rank, int started, int world_size,
                  const Body& body, const std::string& master = Network::address(0)) {
    pids_.push_back(network.start(host, [=, this] {
      dup2(said_.file(), STDERR_FILENO);
      setenv("RANK", std::to_string(rank).c_str(), 1);
      setenv("WORLD_SIZE", std::to_string(started).c_str(), 1);
      setenv("MASTER_ADDR", master.c_str(), 1);
      setenv("MASTER_PORT", "29400", 1);
      return fsdp::start(world_size, body, "program", nullptr, 20s);
    }));
  }
  void start(Network& network, int world_size, const Body& body) {
    for (int rank = 0; rank < world_size; ++rank)
      start_rank(network, rank / (world_size / 2), rank, world_size, world_size, body);
  }

  // Their statuses, as of waitpid(), when all have ended.
  std::vector<int> ended() {
    std::vector<int> statuses;
    for (const pid_t pid : pids_) {
      int status = 0;
      EXPECT_EQ(waitpid(pid, &status, 0), pid);
      statuses.push_back(status);
    }
    pids_.clear();
    return statuses;
  }

  // One story, which has these words, of ranks that have all failed.
  void expect_story(const std::vector<std::string>& words) {
    const auto begin = std::chrono::steady_clock::now();
    const auto statuses = ended();
    EXPECT_LE(std::chrono::steady_clock::now() - begin, kLimit + kToEnd);
    EXPECT_EQ(std::count(statuses.begin(), statuses.end(), 0), 0);
    EXPECT_EQ(count("program: ", said_.text()), 1) << said_.text();
    for (const std::string& word : words)
      EXPECT_CONTAINS(said_.text(), word);
  }

  Said said_;
  std::vector<pid_t> pids_;
};

std::shared_ptr<Communicator> communicator(const RankContext& context, int shard_size,
                                           std::optional<Fault> fault = {}) {
  return Communicator::create_hybrid(context, {.timeout = kLimit, .fault = fault}, shard_size);
}

// The results of every collective, a frame each, to this rank's channel.
Body collectives(std::vector<Channel>& channels, int shard_size) {
  return [&channels, shard_size](const RankContext& context) {
    at::set_num_threads(1);
    const auto comm = communicator(context, shard_size);
    const int64_t world = comm->world_size();
    const at::Tensor mine =
        at::sin(at::arange(world * 5, at::kFloat) + 0.1 * static_cast<double>(context.rank));
    at::Tensor all = at::empty({world * world * 5});
    comm->all_gather_into(all, mine, "a").wait();
    at::Tensor part = at::empty({5});
    comm->reduce_scatter_into(part, mine, "b").wait();
    at::Tensor sum = mine.clone();
    comm->all_reduce(sum, "c").wait();
    at::Tensor last = mine.clone();
    comm->broadcast(last, static_cast<int>(world) - 1, "d").wait();
    comm->barrier("e").wait();
    for (const at::Tensor& result : {all, part, sum, last})
      channels[static_cast<size_t>(context.rank)].send(to_observation(result));
    return 0;
  };
}

TEST_F(RanksOnHosts, compute_the_bits_of_one_host) {
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

TEST_F(RanksOnHosts, compute_them_over_a_wire_that_delays_and_loses_packets) {
  Network network(2, {.delay = 5ms, .loss = 0.01});
  std::vector<Channel> here(2), there(2);
  ASSERT_TRUE(launch(2, collectives(here, 2)).ok());
  start(network, 2, collectives(there, 2));
  EXPECT_EQ(ended(), std::vector<int>(2, 0)) << said_.text();
  for (size_t rank = 0; rank < 2; ++rank)
    EXPECT_EQ(there[rank].frames(), here[rank].frames());
}

TEST_F(RanksOnHosts, share_memory_inside_of_a_host_alone) {
  Network network(2);
  start(network, 4, [](const RankContext& context) {
    const auto comm = communicator(context, 2);
    const bool right = comm->backend() == "shm" && comm->replicas()->backend() == "gloo" &&
                       context.local_rank() == context.rank % 2;
    return right && communicator(context, 4)->backend() == "gloo" ? 0 : 3;
  });
  EXPECT_EQ(ended(), std::vector<int>(4, 0)) << said_.text();
}

void all_gather(Communicator& comm, const std::string& unit) {
  comm.all_gather_into(at::zeros({comm.world_size() * 8}), at::zeros({8}), unit).wait();
}

// Six gathers in each group, of which each rank may do something before the fourth.
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

TEST_F(RanksOnHosts, tell_once_of_a_call_that_was_left_out) {
  Network network(2);
  start(network, 4, gathers(4, Fault{Fault::Kind::skip, 2, 3}));
  expect_story({"collective #3 differs", "ranks 0, 1 and 3", "all_gather layers.4",
                "host-a: ranks 0, 1; host-b: ranks 2, 3"});
}

TEST_F(RanksOnHosts, tell_once_of_a_rank_that_was_killed) {
  for (const int rank : {0, 3}) {
    for (const int shard_size : {4, 2}) {
      said_.clear();
      Network network(2);
      start(network, 4, gathers(shard_size, Fault{Fault::Kind::kill, rank, shard_size == 4 ? 3u : 5u}));
      expect_story({"rank " + std::to_string(rank) + (rank == 0 ? " on host-a" : " on host-b") +
                    " was killed by signal 9 (Killed) after collective #2 all_gather layers.2"});
    }
  }
}

TEST_F(RanksOnHosts, tell_once_of_a_rank_that_throws) {
  Network network(2);
  start(network, 4, gathers(4, {}, [](const RankContext& context) {
          if (context.rank == 3) throw std::runtime_error("the disk is full");
        }));
  expect_story({"rank 3 on host-b failed: the disk is full"});
}

TEST_F(RanksOnHosts, tell_once_of_a_rank_that_is_stuck) {
  Network network(2);
  start(network, 4, gathers(4, {}, [](const RankContext& context) {
          while (context.rank == 3)
            pause();
        }));
  expect_story({"all_gather layers.3 (collective #3) is not complete: rank 3 has not called it",
                "its last call was #2 all_gather layers.2", "host-b: ranks 2, 3"});
}

TEST_F(RanksOnHosts, tell_once_of_a_rank_that_leaves_early) {
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

// Waits until all ranks are about to make their fourth gather, in which they then are.
class Moment {
 public:
  Moment()
      : words_(static_cast<std::atomic<int>*>(
            mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Moment() { munmap(static_cast<void*>(words_), 4096); }
  void come() { ++*words_; }
  void wait_for(int ranks) {
    while (*words_ < ranks)
      usleep(1000);
  }

 private:
  std::atomic<int>* words_;
};

// Rank 3 never makes the call; the others wait in it.
Body gathers_until(Moment& moment) {
  return gathers(4, {}, [&](const RankContext& context) {
    moment.come();
    while (context.rank == 3)
      pause();
  });
}

TEST_F(RanksOnHosts, tell_once_on_each_side_of_a_wire_that_was_cut) {
  Network network(2);
  Moment moment;
  start(network, 4, gathers_until(moment));
  moment.wait_for(4);
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

TEST_F(RanksOnHosts, tell_once_of_a_host_that_is_gone) {
  for (const int host : {1, 0}) {
    said_.clear();
    Network network(2);
    Moment moment;
    start(network, 4, gathers_until(moment));
    moment.wait_for(4);
    network.end(host);
    const auto begin = std::chrono::steady_clock::now();
    ended();
    EXPECT_LE(std::chrono::steady_clock::now() - begin, kLimit + kToEnd);
    EXPECT_EQ(count("program: ", said_.text()), 1) << said_.text();
    EXPECT_CONTAINS(said_.text(), host == 1 ? "rank 2 does not answer (its host is down"
                                            : "host-b can't reach the store at 10.77.0.1");
  }
}

// The local addresses, in hexadecimal, of the sockets of this network name space that listen.
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

TEST_F(RanksOnHosts, listen_on_the_address_alone_by_which_they_reach_the_store) {
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

TEST_F(RanksOnHosts, that_are_too_many_wait_for_the_end_of_the_others) {
  Network network(2);
  for (const int code : {0, 5}) {
    said_.clear();
    for (int rank = 0; rank < 3; ++rank)
      start_rank(network, rank / 2, rank, 3, 2, [=](const RankContext&) { return code; });
    const auto statuses = ended();
    EXPECT_CONTAINS(said_.text(), "program: rank 2 is spare: this run takes 2 of the 3 ranks");
    EXPECT_EQ(WEXITSTATUS(statuses[2]), code == 0 ? 0 : 1);
  }
}

TEST_F(RanksOnHosts, name_an_address_that_is_none_of_the_first_host) {
  Network network(1);
  start_rank(
      network, 0, 0, 2, 2, [](const RankContext&) { return 0; }, "10.77.0.9");
  EXPECT_EQ(WEXITSTATUS(ended()[0]), 1);
  EXPECT_CONTAINS(said_.text(), "MASTER_ADDR=10.77.0.9 is no address of this host");
}

// ./fsdp train by ranks on two hosts.
class TrainingOnHosts : public RanksOnHosts {
 protected:
  static std::vector<std::string> arguments(const std::string& more) {
    std::istringstream words("--mode fsdp --model gpt2-tiny --steps 3 --batch 8 --seq 16 --data "
                             "pattern --timeout 20 " + more);
    std::vector<std::string> list{std::filesystem::canonical("/proc/self/exe").parent_path() /
                                  "reference_train"};
    for (std::string word; words >> word;)
      list.push_back(word);
    return list;
  }
  int run(const std::vector<std::string>& command) {
    std::vector<char*> argv;
    for (const std::string& word : command)
      argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    dup2(said_.file(), STDOUT_FILENO);
    dup2(said_.file(), STDERR_FILENO);
    execv(argv[0], argv.data());
    return 127;
  }
  // `of_last`: options that the last rank alone has.
  void train(Network& network, const std::string& options, const std::string& of_last = "") {
    for (int rank = 0; rank < 4; ++rank) {
      pids_.push_back(network.start(rank / 2, [=, this] {
        const SetVariables set({{"RANK", std::to_string(rank)},
                                {"WORLD_SIZE", "4"},
                                {"MASTER_ADDR", Network::name(0)},
                                {"MASTER_PORT", "29400"},
                                {"LOCAL_WORLD_SIZE", "2"}});
        return run(arguments(options + ' ' + (rank == 3 ? of_last : "")));
      }));
    }
  }
  // The words from `begin` to the end of the line in what was said last.
  std::string line_with(const std::string& begin) const {
    const std::string text = said_.text();
    const size_t at = text.rfind(begin);
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  }
};

TEST_F(TrainingOnHosts, ends_with_the_parameters_of_one_host_and_the_bytes_predicted) {
  Network network(2);
  pids_.push_back(network.start(0, [this] { return run(arguments("--world 4")); }));
  ASSERT_EQ(ended(), std::vector<int>{0}) << said_.text();
  const std::string alone = line_with("sha256 ");
  ASSERT_NE(alone, "");
  for (const std::string strategy : {"full", "grad_op", "hybrid"}) {
    said_.clear();
    train(network, "--strategy " + strategy);
    EXPECT_EQ(ended(), std::vector<int>(4, 0)) << said_.text();
    EXPECT_EQ(line_with("sha256 "), alone) << strategy;
    EXPECT_CONTAINS(said_.text(), "24 of 24 peaks of rank 0 are as predicted");
    EXPECT_CONTAINS(said_.text(),
                    strategy == "hybrid" ? "over shm and gloo on 2 hosts" : "over gloo on 2 hosts");
  }
}

TEST_F(TrainingOnHosts, names_a_rank_whose_options_or_folder_are_others) {
  Network network(2);
  train(network, "", "--lr 0.5");
  ended();
  EXPECT_CONTAINS(said_.text(), "rank 3 on host-b was started with other options");
  said_.clear();
  train(network, "--checkpoint-dir /dev/shm/run");  // of each host
  ended();
  EXPECT_CONTAINS(said_.text(), "rank 2 on host-b does not see --checkpoint-dir /dev/shm/run");
}

}  // namespace
}  // namespace fsdp
