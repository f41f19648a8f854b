#include <comm/collective_error.h>
#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <common/shared_words.h>
#include <hosts/handover.h>
#include <hosts/store_client.h>
#include <launch/rank_context.h>

#include <csignal>

#include "ranks_on_hosts.h"

namespace fsdp {
namespace {

constexpr auto kPatience = 5s;  // time limit of every wait for another rank and of joining

void end_process(pid_t process) {
  EXPECT_EQ(kill(process, SIGKILL), 0);
}

// The second loss of a test, in addition to rank 5: host-b, a rank on host-a or host-b, or the
// process of rank 0 (`caller`). The process of a rank is the parent process that called start() and
// waits for the rank; that of rank 0 decides which ranks continue. A host or a rank is lost while
// this process decides, before the ranks that continue connect, or in their first step.
struct Loss {
  // Runs in the process of the test, after each rank has reported the states that it saved and
  // before the process of rank 0 decides which ranks continue.
  std::function<void(Network&, const std::vector<pid_t>& processes)> in_the_roll{};
  // Each of the four ranks that continue runs these functions: the first one before it connects,
  // the second one in its first step.
  std::function<void(int rank)> before_connecting{}, in_the_first_step{};
  // Says whether and when the process of rank 0, which decides, ends: in the step in which rank 5
  // is killed, or after rank 0 has failed because rank 5 is missing. In these two cases another
  // process hosts the store, as a launcher can do.
  enum class Caller { stays, ends_with_rank_5, ends_after_rank_5 };
  Caller caller{};
};

// Runs two ranks on each of three hosts, and kills rank 5, on host-c.
class LostHost : public MultiHostRun {
 protected:
  // Kills rank 5 and causes `loss`. Expects that all ranks end in time, that they print `stories`
  // reports and name rank 5, and that all ranks fail, except those of host-a if `survives`.
  void lose(const Loss& loss, bool survives, int stories) {
    Network network(3);
    pid_t store = 0;
    if (loss.caller != Loss::Caller::stays) {
      setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
      store = network.start(0, [] {
        LaunchedRank self;
        self.world_size = 6;
        self.host = Network::address(0);
        self.port = 29400;
        const StoreServer server(self);
        return pause();
      });
    }
    for (int rank = 0; rank < 6; ++rank)
      start_rank(network, rank / 2, rank, 6, 6, six_steps(loss), Network::address(0), kPatience,
                 [&](int ranks) { return after_loss(ranks, loss); });
    if (loss.in_the_roll) {
      wait_until(moment_[0], kRollIsCalled);
      loss.in_the_roll(network, pids_);
      moment_[0] = kVerdict;
    }
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<pid_t> of_a(pids_.begin(), pids_.begin() + 2);
    pids_.erase(pids_.begin(), pids_.begin() + 2);
    const auto others = ended();
    moment_[0] = kOthersHaveEnded;
    pids_ = of_a;
    const auto statuses = ended();
    EXPECT_LE(std::chrono::steady_clock::now() - begin, 2 * kPatience + kToEnd);
    EXPECT_EQ(std::count(others.begin(), others.end(), 0), 0);
    EXPECT_EQ(std::count(statuses.begin(), statuses.end(), 0), survives ? 2 : 0);
    EXPECT_EQ(count("program: ", said_.text()), stories) << said_.text();
    EXPECT_CONTAINS(said_.text(), "rank 5");
    if (store == 0) return;
    end_process(store);
    waitpid(store, nullptr, 0);
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  }

 private:
  static constexpr int kRollIsCalled = 1, kVerdict = 2, kOthersHaveEnded = 3;

  Body six_steps(const Loss& loss) {
    return [&](const RankContext& context) {
      const bool continues = context.world_size == 4;
      if (continues && loss.before_connecting) loss.before_connecting(context.rank);
      const Handover& handover = *context.handover;
      int64_t step = handover.steps().value_or(0);
      try {
        const auto comm = Communicator::create(context, {.timeout = kPatience});
        handover.free();
        if (continues && loss.in_the_first_step) loss.in_the_first_step(context.rank);
        for (; step < 6; ++step) {
          if (context.world_size == 6 && context.rank == 5 && step == 3) raise(SIGKILL);
          if (context.rank == 0 && step == 3 && loss.caller == Loss::Caller::ends_with_rank_5)
            end_process(getppid());
          comm->barrier("step").wait();
        }
        // The process of rank 0, which is on host-a, hosts the store. So the ranks of host-a stay
        // until the ranks of other hosts have ended.
        if (context.world_size == 2) wait_until(moment_[0], kOthersHaveEnded);
      } catch (const CollectiveError&) {
        if (!handover.steps()) handover.save(step, [](int) {});
        if (context.rank == 0 && loss.caller == Loss::Caller::ends_after_rank_5)
          end_process(getppid());
        throw;
      }
      return 0;
    };
  }

  int after_loss(int ranks, const Loss& loss) {
    if (ranks == 4 && loss.in_the_roll) {
      moment_[0] = kRollIsCalled;
      wait_until(moment_[0], kVerdict);
    }
    return ranks;
  }

  SharedWords moment_;
};

TEST_F(LostHost, survivors_continue_if_a_second_host_goes_down_while_rank_0_decides) {
  lose({.in_the_roll = [](Network& network, const auto&) { network.end(1); }}, true, 2);
  EXPECT_CONTAINS(said_.text(), "host-b is lost: rank 2 does not answer (its host is down");
}

TEST_F(LostHost, survivors_continue_if_a_second_host_is_cut_off_while_rank_0_decides) {
  lose({.in_the_roll = [](Network& network, const auto&) { network.cut(1); }}, true, 3);
  EXPECT_CONTAINS(said_.text(), "host-b can't reach the store at 10.77.0.1:29400 on host-a");
}

TEST_F(LostHost, survivors_continue_without_a_host_whose_rank_does_not_rejoin) {
  lose({.in_the_roll = [](Network&, const auto& processes) { end_process(processes[3]); }}, true,
       2);
}

TEST_F(LostHost, the_run_ends_if_a_rank_on_the_host_of_rank_0_does_not_rejoin) {
  lose({.in_the_roll = [](Network&, const auto& processes) { end_process(processes[1]); }}, false,
       2);
  EXPECT_CONTAINS(said_.text(),
                  "rank 0 on host-a: can't join the others: rank 1 has not come (store at");
}

TEST_F(LostHost,
       the_run_ends_soon_if_rank_0s_parent_process_and_rank_5_are_killed_in_the_same_step) {
  lose({.caller = Loss::Caller::ends_with_rank_5}, false, 1);
}

// The other ranks first see that rank 0's parent process is alive. Then this process is killed.
TEST_F(LostHost,
       the_run_ends_soon_if_rank_0s_parent_process_is_killed_before_it_decides_who_continues) {
  lose({.caller = Loss::Caller::ends_after_rank_5}, false, 1);
}

void end_rank_3(int rank) {
  if (rank == 3) raise(SIGKILL);
}

TEST_F(LostHost, survivors_continue_if_rank_3_is_killed_before_they_connect_after_the_loss) {
  lose({.before_connecting = end_rank_3}, true, 2);
  EXPECT_CONTAINS(said_.text(), "rank 3 on host-b was killed by signal 9 (Killed)");
}

TEST_F(LostHost, survivors_continue_if_rank_3_is_killed_in_their_first_step_after_the_loss) {
  lose({.in_the_first_step = end_rank_3}, true, 2);
  EXPECT_CONTAINS(said_.text(), "rank 3 on host-b was killed by signal 9 (Killed)");
}

}  // namespace
}  // namespace fsdp
