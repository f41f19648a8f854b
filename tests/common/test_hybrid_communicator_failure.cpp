#include <comm/communicator_options.h>
#include <testing/multi_rank.h>
#include <unistd.h>

#include "expect_text.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;

// Runs 2 replicas of 2 ranks, in which one rank has a fault.
class HybridCommunicatorFailure : public testing::TestWithParam<std::string> {
 protected:
  // Returns the failure of a run of three units. Each unit is all-gathered and reduce-scattered,
  // and its sum is all-reduced between the replicas. `before` runs before the calls of each unit.
  // If `before` issues no call, call 3 u + 2 of a rank (counted from 0) is the all-reduce of unit
  // u.
  static std::string failure(const Fault& fault,
                             const std::function<void(TestRank&)>& before = nullptr) {
    const auto body = [&](TestRank& rank) {
      const auto& comm = rank.hybrid(2);
      for (int unit = 0; unit < 3; ++unit) {
        if (before) before(rank);
        const std::string name = "layers." + std::to_string(unit);
        const at::Tensor shard = at::zeros({4}), whole = at::zeros({8});
        comm->all_gather_into(whole, shard, name).wait();
        comm->reduce_scatter_into(shard, whole, name).wait();
      }
    };
    return try_ranks(4, body, {.backend = GetParam(), .fault = fault}).failure();
  }
};

INSTANTIATE_TEST_SUITE_P(, HybridCommunicatorFailure, testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

TEST_P(HybridCommunicatorFailure, the_error_of_a_skipped_collective_names_the_ranks_of_its_group) {
  EXPECT_CONTAINS(failure({Fault::Kind::skip, 3, 3}),
                  "collective #2 of shard group 1 (ranks 2, 3) differs between ranks:\n"
                  "  rank 2  all_gather layers.1 (8 x float, 32 B)\n"
                  "  rank 3  reduce_scatter layers.1 (8 x float, 32 B)\n");
  EXPECT_CONTAINS(failure({Fault::Kind::skip, 3, 5}),
                  "collective #1 of the replicas of shard 1 (ranks 1, 3) differs between ranks:\n"
                  "  rank 1  all_reduce layers.1 (4 x float, 16 B)\n"
                  "  rank 3  all_reduce layers.2 (4 x float, 16 B)\n");
}

TEST_P(HybridCommunicatorFailure, the_error_names_a_killed_ranks_last_collective_in_any_group) {
  EXPECT_CONTAINS(failure({Fault::Kind::kill, 3, 5}),
                  "rank 3 was killed by signal 9 (Killed); last collective #3 reduce_scatter "
                  "layers.1 of its shard group");
  EXPECT_CONTAINS(failure({Fault::Kind::kill, 3, 6}),
                  "last collective #1 all_reduce layers.1 of its replicas");
}

TEST_P(HybridCommunicatorFailure,
       the_call_number_of_a_fault_counts_the_calls_of_all_communicators_of_a_rank) {
  const std::string text = failure({Fault::Kind::kill, 2, 5}, [](TestRank& rank) {
    rank.communicator()->barrier("world").wait();
  });
  EXPECT_CONTAINS(text, "rank 2 was killed by signal 9 (Killed); last collective #1 barrier world");
}

TEST_P(HybridCommunicatorFailure, the_error_names_a_missing_ranks_last_collective_in_any_group) {
  const auto body = [](TestRank& rank) {
    const at::Tensor shard = at::zeros({4}), whole = at::zeros({8});
    const auto& comm = rank.hybrid(2);
    comm->reduce_scatter_into(shard, whole, "layers.0").wait();
    const Handle elsewhere = rank.communicator()->barrier("elsewhere");
    if (rank.rank() == 3) pause();
    comm->all_gather_into(whole, shard, "layers.1").wait();
  };
  const RankRun run = try_ranks(4, body, {.backend = GetParam(), .timeout = 1500ms});
  EXPECT_CONTAINS(run.failure(),
                  "rank 2: all_gather layers.1 (collective #1) of shard group 1 (ranks 2, 3) timed "
                  "out after 1.5 s: rank 3 has not called it; its last call was #0 barrier "
                  "elsewhere");
}

}  // namespace
}  // namespace fsdp
