#include <state/whole_state.h>
#include <testing/multi_rank.h>

#include <algorithm>
#include <iterator>

#include <common/expect_text.h>
#include "saved_state.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(StateOfAllRanks);

// Returns the state of rank `rank`. The ranks own the parts of the parameters in reverse order, and
// every rank has a copy of the parameter a.bias.
ModelState state_of(int rank, int world_size) {
  ModelState state = cut_state(world_size - 1 - rank, world_size);
  const auto copied = [](const StateRange& range) { return range.parameter == "a.bias"; };
  std::erase_if(state.ranges, copied);
  std::ranges::copy_if(whole_state().ranges, std::back_inserter(state.ranges), copied);
  return state;
}

// This test is only about elements of a parameter that are in no rank's ranges.
// test_model_checkpoint.cpp tests the order and the values in a WholeState, through checkpoints in
// the full format.
MULTI_RANK_TEST(StateOfAllRanks, a_state_of_all_ranks_that_lacks_an_element_throws_on_every_rank) {
  run_ranks(world_size(), [](TestRank& rank) {
    ModelState state = state_of(rank.rank(), rank.world_size());
    for (StateRange& range : state.ranges)
      if (range.begin == 0 && range.parameter == "a.weight") range.begin = 1;
    EXPECT_EQ(error_of<std::logic_error>([&] { WholeState(state, *rank.communicator()); }),
              "the ranges of all ranks do not cover the parameter a.weight once");
  });
}

MULTI_RANK_TEST(StateOfAllRanks, state_sha256_depends_on_parameters_moments_and_step_counts) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto hash = [&](const ModelState& state) {
      return state_sha256(state, *rank.communicator());
    };
    const ModelState plain = state_of(rank.rank(), rank.world_size());
    rank.observe("hash", hash(plain));
    for (const StateKind kind : kStateKinds) {
      ModelState changed = state_of(rank.rank(), rank.world_size());
      for (StateRange& range : changed.ranges)
        if (range.parameter == "a.weight" && range.end == 42)
          tensor_of(range, kind).view({-1})[-1] += 1;
      // The hash uses the step count of a parameter's first range. So the test changes the step
      // count of all ranges.
      for (StateRange& range : changed.ranges)
        if (range.parameter == "a.weight" && kind == StateKind::step) range.step.fill_(8);
      EXPECT_EQ(hash(changed) != hash(plain), rank.rank() == 0) << to_string(kind);
    }
  });
  const RankRun one = run_ranks(1, [](TestRank& rank) {
    rank.observe("hash", state_sha256(state_of(0, 1), *rank.communicator()));
  });
  for (int rank = 0; rank < world_size(); ++rank)
    expect_on_rank(run, rank, "hash", rank == 0 ? one.at(0, "hash") : "");
}

}  // namespace
}  // namespace fsdp
