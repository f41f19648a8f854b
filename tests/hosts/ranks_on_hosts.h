#pragma once

#include <base/mapping.h>
#include <base/memory_file.h>
#include <common/expect_text.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <hosts/start.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "network.h"

namespace fsdp {

using namespace std::chrono_literals;
using Body = std::function<int(const RankContext&)>;

inline constexpr auto kLimit = 3s;  // time limit of every wait for another rank
// The longest time that ranks may take to end after a time limit such as kLimit: 20 s. Ranks
// usually need 3 s, and more on a busy machine.
inline constexpr auto kToEnd = 20s;

// A file in memory to which processes of all hosts append their output.
class CapturedStderr {
 public:
  CapturedStderr() { fcntl(file(), F_SETFL, O_APPEND); }
  int file() const { return file_.descriptor; }
  void clear() { ASSERT_EQ(ftruncate(file(), 0), 0); }
  std::string text() const { return content_of(file_, "what was said"); }

 private:
  OpenFile file_ = memory_file("said");
};

inline int count(const std::string& part, const std::string& text) {
  int found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at)
    ++found;
  return found;
}

// Runs ranks on several emulated hosts. Each rank is started by itself, without a launcher. The
// ranks are numbered in the order of the hosts.
class MultiHostRun : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = Network::unavailable(); !why.empty()) GTEST_SKIP() << why;
    alarm(120);
  }
  void TearDown() override { alarm(0); }

  // Starts rank `rank` of `started` ranks. The program needs `world_size` of them; the others are
  // spare.
  void start_rank(Network& network, int host, int rank, int started, int world_size,
                  const Body& body, const std::string& master = Network::address(0),
                  std::chrono::milliseconds to_join = 20s,
                  const std::function<int(int ranks)>& after_loss = nullptr) {
    pids_.push_back(network.start(host, [=, this] {
      dup2(said_.file(), STDERR_FILENO);
      setenv("RANK", std::to_string(rank).c_str(), 1);
      setenv("WORLD_SIZE", std::to_string(started).c_str(), 1);
      setenv("MASTER_ADDR", master.c_str(), 1);
      setenv("MASTER_PORT", "29400", 1);
      return fsdp::start(world_size, body, "program", nullptr, to_join, after_loss);
    }));
  }
  // Starts `world_size` ranks on two hosts, the first half of them on host 0.
  void start(Network& network, int world_size, const Body& body) {
    for (int rank = 0; rank < world_size; ++rank)
      start_rank(network, rank / (world_size / 2), rank, world_size, world_size, body);
  }

  // Waits for the parent processes of all started ranks. Returns their statuses as waitpid()
  // reports them.
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

  // Waits for all ranks. Expects that all of them failed in time, and that together they printed
  // one report, which contains each of `words`.
  void expect_story(const std::vector<std::string>& words) {
    const auto begin = std::chrono::steady_clock::now();
    const auto statuses = ended();
    EXPECT_LE(std::chrono::steady_clock::now() - begin, kLimit + kToEnd);
    EXPECT_EQ(std::count(statuses.begin(), statuses.end(), 0), 0);
    EXPECT_EQ(count("program: ", said_.text()), 1) << said_.text();
    for (const std::string& word : words)
      EXPECT_CONTAINS(said_.text(), word);
  }

  CapturedStderr said_;
  std::vector<pid_t> pids_;
};

}  // namespace fsdp
