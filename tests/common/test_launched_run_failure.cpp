#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <hosts/join.h>
#include <hosts/start.h>
#include <launch/rank_context.h>
#include <launch/shared_region.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives.h"
#include "expect_text.h"
#include "in_a_process.h"
#include "limit_file_size.h"
#include "shared_words.h"
#include "torchrun.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;
using Body = std::function<int(const RankContext&)>;

// Blocks a rank until a signal ends it. After 30 s, the alarm that torchrun() sets ends the parent
// process of the rank, and the rank ends with it.
void wait_for_the_end() {
  for (;;)
    pause();
}

Body gather_six_units(std::optional<Fault> fault) {
  return [fault](const RankContext& context) {
    auto comm = Communicator::create(context, {.timeout = 10s, .fault = fault});
    for (int i = 0; i < 6; ++i)
      all_gather(*comm, "layers." + std::to_string(i));
    return 0;
  };
}

int nothing(const RankContext&) {
  return 0;
}

TEST(LaunchedRunFailure, only_one_process_reports_a_collective_that_differs_between_ranks) {
  HostedStore store;
  const Ended ended = torchrun(3, store.port(), gather_six_units(Fault{Fault::Kind::skip, 1, 3}));
  EXPECT_EQ(ended.said.find("program: rank "), ended.said.rfind("program: rank ")) << ended.said;
  EXPECT_CONTAINS(ended.said, "collective #3 differs");
  EXPECT_CONTAINS(ended.said, "all_gather layers.3");
  EXPECT_CONTAINS(ended.said, "all_gather layers.4");
  for (const int status : ended.statuses)
    EXPECT_NE(status, 0);
}

TEST(LaunchedRunFailure, if_a_launched_rank_is_killed_the_report_names_it_and_its_last_collective) {
  HostedStore store;
  const Ended ended = torchrun(3, store.port(), gather_six_units(Fault{Fault::Kind::kill, 1, 4}),
                               {}, OfFailure::left_to_notice);
  EXPECT_CONTAINS(
      ended.said,
      "program: rank 1 was killed by signal 9 (Killed) after collective #3 all_gather layers.3\n");
  EXPECT_TRUE(WIFEXITED(ended.statuses[1]));
  EXPECT_EQ(WEXITSTATUS(ended.statuses[1]), 1);
}

TEST(LaunchedRunFailure, an_exception_of_a_rank_is_reported_in_one_line_without_a_backtrace) {
  HostedStore store;
  const Ended ended = torchrun(2, store.port(), [](const RankContext& context) {
    if (context.rank == 1) TORCH_CHECK(false, "no such unit: layers.9");
    wait_for_the_end();
    return 0;
  });
  EXPECT_EQ(ended.said, "program: rank 1 failed: no such unit: layers.9\n");
}

TEST(LaunchedRunFailure,
     if_a_process_that_torchrun_started_gets_sigterm_or_sigint_no_rank_outlives_it) {
  for (const int signal : {SIGTERM, SIGINT}) {
    HostedStore store;
    SharedWords pids;
    const Ended ended = torchrun(3, store.port(), [&](const RankContext& context) {
      auto comm = Communicator::create(context);
      pids[context.rank] = getpid();
      comm->barrier("all have sent").wait();
      if (context.rank == 0) kill(getppid(), signal);
      wait_for_the_end();
      return 0;
    });
    EXPECT_EQ(ended.said, "");
    EXPECT_TRUE(WIFSIGNALED(ended.statuses[0]));
    EXPECT_EQ(WTERMSIG(ended.statuses[0]), signal);
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_NE(kill(pids[rank], 0), 0);
  }
}

TEST(LaunchedRunFailure, start_fails_if_the_program_needs_more_ranks_than_torchrun_launched) {
  const SetVariables set(torchrun_variables(0, 1, 29500));
  testing::internal::CaptureStderr();
  EXPECT_EQ(start(2, nothing, "program"), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "program: torchrun has started 1 rank, but this program needs 2\n");
}

// A limit of file sizes (ulimit -f) also limits the files in memory that ranks share. If the limit
// is too small for these files, the launch succeeds, and the ranks use gloo.
TEST_IN_A_PROCESS(LaunchedRunFailure, gloo_is_used_if_the_file_size_limit_is_too_small_for_shm) {
  limit_file_size(size_t{100} << 20);
  const HostedStore store;
  const Ended ended = torchrun(2, store.port(), [](const RankContext& context) {
    return Communicator::create(context)->backend() == "gloo" ? 0 : 3;
  });
  EXPECT_EQ(ended.statuses, (std::vector<int>{0, 0})) << ended.said;
}

// Returns the message of the error that join(self) throws.
std::string refusal(const LaunchedRank& self) {
  return error_of<std::runtime_error>([&] { join(self); });
}

// Returns the error of a join() that has reached the store. Repeats join() up to five times until
// it reaches the store: LibTorch looks up the name of the store's address when it connects, and a
// slow name server can need longer than the timeout of join().
std::string refusal_of_the_store(const LaunchedRank& self) {
  std::string text = refusal(self);
  for (int i = 0; i < 5 && text.find("can't reach the store") != std::string::npos; ++i)
    text = refusal(self);
  return text;
}

TEST(LaunchedRunFailure, the_error_of_join_names_the_ranks_that_have_not_joined) {
  HostedStore store;
  EXPECT_CONTAINS(
      refusal_of_the_store({0, 3, "127.0.0.1", store.port(), true, "a", 200ms}),
      "rank 0: can't join the others: ranks 1 and 2 have not come (store at 127.0.0.1:");
  EXPECT_CONTAINS(
      refusal_of_the_store({2, 3, "127.0.0.1", store.port(), true, "b", 200ms}),
      "rank 2: can't join the others: ranks 0 and 1 have not come (store at 127.0.0.1:");
}

TEST(LaunchedRunFailure, the_error_of_join_names_all_missing_ranks_and_no_key_of_the_store) {
  HostedStore store;
  const std::string text =
      refusal_of_the_store({2, 9, "127.0.0.1", store.port(), true, "c", 200ms});
  EXPECT_CONTAINS(text,
                  "rank 2: can't join the others: ranks 0, 1 and 3 to 8 have not come (store");
  EXPECT_CONTAINS(text, "; no answer within the time limit)");
  EXPECT_EQ(text.find("identity"), std::string::npos) << text;
}

TEST(LaunchedRunFailure, a_rank_that_waits_long_in_join_prints_once_which_ranks_it_misses) {
  HostedStore store;
  std::vector<std::string> told;
  const auto tell = [&](const std::string& text) { told.push_back(text); };
  // Calls join() up to five times, until it has reached the store. The comment above
  // refusal_of_the_store() says why a call may not reach it.
  for (int i = 0; i < 5 && (told.empty() || told[0].find("reach the store") < told[0].size());
       ++i) {
    told.clear();
    const LaunchedRank self{0, 3, "127.0.0.1", store.port(), true, std::to_string(i), 600ms, 300ms};
    EXPECT_CONTAINS(error_of<std::runtime_error>([&] { join(self, tell); }), "can't join");
    ASSERT_EQ(told.size(), 1U);
  }
  EXPECT_CONTAINS(told[0], "rank 0 waits: ranks 1 and 2 have not come (store at 127.0.0.1:");
  EXPECT_CONTAINS(told[0], "unset RANK and WORLD_SIZE to start all ranks here");
}

// join() looks once a second for the ranks that it waits for, so it looks several times here.
TEST(LaunchedRunFailure, join_announces_a_long_wait_once_even_if_it_looks_for_ranks_several_times) {
  HostedStore store;
  std::vector<std::string> told;
  const LaunchedRank self{0, 3, "127.0.0.1", store.port(), true, "d", 4s, 2500ms};
  const auto tell = [&](const std::string& text) { told.push_back(text); };
  EXPECT_CONTAINS(error_of<std::runtime_error>([&] { join(self, tell); }), "can't join");
  ASSERT_EQ(told.size(), 1U);
}

TEST(LaunchedRunFailure, start_fails_if_other_ranks_have_not_joined_within_its_timeout) {
  HostedStore store;
  const SetVariables set(torchrun_variables(0, 2, store.port()));
  testing::internal::CaptureStderr();
  EXPECT_EQ(start(2, nothing, "program", nullptr, 300ms), 1);
  EXPECT_CONTAINS(testing::internal::GetCapturedStderr(),
                  "program: rank 0: can't join the others: ");
}

TEST(LaunchedRunFailure, if_a_rank_ends_early_the_errors_of_the_other_ranks_name_it) {
  HostedStore store;
  const auto body = [](const RankContext& context) {
    auto comm = Communicator::create(context, {.timeout = 600s});
    all_gather(*comm, "layers.0");
    if (context.rank == 0) all_gather(*comm, "layers.1");
    return 0;
  };
  const Ended ended = torchrun(2, store.port(), body, {}, OfFailure::left_to_notice);
  EXPECT_CONTAINS(ended.said,
                  "program: rank 0: all_gather layers.1 (collective #1): rank 1 has ended with "
                  "status 0 after collective #0 all_gather layers.0\n");
  EXPECT_EQ(WEXITSTATUS(ended.statuses[0]), 1);
  EXPECT_EQ(ended.statuses[1], 0);
}

TEST(LaunchedRunFailure,
     if_the_parent_process_of_a_rank_is_killed_the_error_of_another_rank_names_this_rank) {
  HostedStore store;
  const auto body = [](const RankContext& context) {
    auto comm = Communicator::create(context, {.timeout = 600s});
    all_gather(*comm, "layers.0");
    if (context.rank == 1) kill(getppid(), SIGKILL);
    if (context.rank == 1) wait_for_the_end();
    all_gather(*comm, "layers.1");
    return 0;
  };
  const Ended ended = torchrun(3, store.port(), body, {}, OfFailure::left_to_notice);
  EXPECT_CONTAINS(ended.said,
                  "all_gather layers.1 (collective #1): rank 1 has vanished (its process is gone) "
                  "after collective #0 all_gather layers.0\n");
  EXPECT_EQ(ended.said.find("program: "), ended.said.rfind("program: ")) << ended.said;
}

TEST(LaunchedRunFailure, the_error_of_join_names_the_address_of_a_store_that_cannot_be_reached) {
  EXPECT_CONTAINS(refusal({1, 2, "nobody.invalid", 29500, true, "a", 200ms}),
                  "rank 1: can't join the others: can't reach the store (store at nobody.invalid:");
  const ReservedPort silent;
  EXPECT_CONTAINS(refusal({1, 2, "127.0.0.1", silent.number(), true, "a", 200ms}),
                  "can't reach the store (store at 127.0.0.1:" + std::to_string(silent.number()));
}

}  // namespace
}  // namespace fsdp
