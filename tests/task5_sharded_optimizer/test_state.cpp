#include <testing/retained_memory.h>

#include <type_traits>

#include "trained_units.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T5_1_state);

// The least and the most bytes of optimizer state that a rank should have if all parameters are in
// one group. A piece is a part of a shard that is updated at once, with one step count. The two
// numbers differ because a solution may join neighbouring parameters to one piece or not.
struct ExpectedState {
  ExpectedState(int rank, int world_size) {
    int64_t pieces_joined = 0, pieces = 0, elements = 0;
    for (const std::string& unit : kUnits) {
      int64_t total = 0;
      for (const Trained& parameter : kParameters)
        if (belongs(parameter, unit)) total += round_up(numel(parameter), kAlignment);
      const int64_t shard = round_up(total, kAlignment * world_size) / world_size;
      int64_t offset = 0, end_of_last = -1;
      for (const Trained& parameter : kParameters) {
        if (!belongs(parameter, unit)) continue;
        const int64_t begin = std::max(offset, rank * shard);
        offset += round_up(numel(parameter), kAlignment);
        const int64_t end = std::min(offset, (rank + 1) * shard);
        if (begin >= end || !parameter.trainable) continue;
        elements += end - begin;
        pieces_joined += begin != end_of_last;
        pieces += 1;
        end_of_last = end;
      }
    }
    at_least = 8 * elements + 4 * pieces_joined;
    at_most = 8 * elements + 4 * pieces;
  }
  int64_t at_least, at_most;
};

MULTI_RANK_TEST(T5_1_state,
                the_state_has_two_moments_of_each_owned_element_and_a_step_count_of_each_piece) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, {{"", adamw()}}, rank.communicator());
    rank.observe("state's bytes before the first step", live(MemoryClass::optimizer_state));
    for (const std::string step : {"first", "second"}) {
      reduce_gradients(units, 0);
      optimizer->step();
      rank.observe("state's bytes after the " + step, live(MemoryClass::optimizer_state));
    }
  });
  expect_on_all_ranks(run, "state's bytes before the first step", 0);
  for (int r = 0; r < world_size(); ++r) {
    const ExpectedState expected(r, world_size());
    const auto& state = run.at(r, "state's bytes after the first");
    EXPECT_GE(state.get<int64_t>(), expected.at_least)
        << "rank " << r << " lacks state: two moments of what it owns and a count for each piece";
    EXPECT_LE(state.get<int64_t>(), expected.at_most)
        << "rank " << r
        << " keeps state beyond two moments of what it owns and a count for each piece: of "
           "padding, of frozen parameters, or of what others own";
    expect_on_rank(run, r, "state's bytes after the second", state);
  }
}

// This test is the sentinel of task 5: until it passes, the task gets no points. It compares no
// exact numbers of bytes, so a step with other mistakes can pass it.
MULTI_RANK_TEST(T5_1_state, a_rank_holds_only_its_part_of_the_optimizer_state) {
  constexpr int kLargeUnits = 16;
  const auto numel = test_choice<int64_t>("numel of a large unit", {262'144, 258'000, 270'001});
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    Units units;
    for (int i = 0; i < kLargeUnits; ++i) {
      at::Tensor values = at::ones({numel}).set_requires_grad(true);
      values.mutable_grad() = at::ones({numel});
      const std::string name = "unit" + std::to_string(i);
      units.push_back(make_flat_parameter(name, std::vector<NamedParameter>{{"weight", values}},
                                          rank.communicator()));
      units.back()->mark_gradient_ready(0);
      units.back()->reduce_gradient();
      units.back()->wait_for_reduction();
    }
    const RetainedMemory memory;
    const auto optimizer = make_sharded_optimizer(units, {{"", adamw()}}, rank.communicator());
    optimizer->step();
    rank.observe("what the rank holds of the state", memory.taken());
  });
  const int64_t parameters = kLargeUnits * numel * int64_t{sizeof(float)};
  expect_part_of(run, "what the rank holds of the state", 2 * parameters);
  expect_no_copies(run, "what the rank holds of the state", parameters);
}

MULTI_RANK_TEST(T5_1_state, a_step_of_adamw_copies_neither_parameters_nor_gradients) {
  constexpr int64_t kScalars = 64;
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer =
        make_sharded_optimizer(units, {{"bias", adamw()}, {"", adamw()}}, rank.communicator());
    reduce_all_gradients(units);
    // The first step allocates the optimizer state. The test measures the second step.
    optimizer->step();
    reduce_all_gradients(units);
    const int64_t before = live_bytes::now().total;
    live_bytes::enter(Phase::optimizer);
    optimizer->step();
    rank.observe("bytes that the second step allocates", live_bytes::peak().total - before);
    observe_old_values(rank, units);
  });
  expect_no_old_values(run);
  for (int r = 0; r < world_size(); ++r)
    EXPECT_LE(run.at(r, "bytes that the second step allocates").get<int64_t>(), kScalars)
        << "bytes that the second step allocates, rank " << r;
}

MULTI_RANK_TEST(T5_1_state, sgd_allocates_no_optimizer_state) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units = make_units(rank, make_parameters());
    const auto optimizer = make_sharded_optimizer(units, {{"", sgd()}}, rank.communicator());
    reduce_all_gradients(units);
    optimizer->step();
    rank.observe("state's bytes", live(MemoryClass::optimizer_state));
    observe_old_values(rank, units);
  });
  expect_no_old_values(run);
  expect_on_all_ranks(run, "state's bytes", 0);
}

MULTI_RANK_TEST(T5_1_state, destroying_the_optimizer_and_its_units_frees_all_memory) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto comm = rank.communicator();
    rank.observe("a copy of a ShardedOptimizer, which would update the same shards, can be made",
                 std::is_copy_constructible_v<ShardedOptimizer>);
    {
      const auto units = make_units(rank, make_parameters());
      const auto optimizer = make_sharded_optimizer(units, groups_that_differ(), comm);
      reduce_all_gradients(units);
      optimizer->step();
      observe_old_values(rank, units);
    }
    // The communicator keeps the tensors alive that other ranks read in place. wait_for_readers()
    // waits until the other ranks have read them, and frees them.
    comm->wait_for_readers();
    for (const MemoryClass cls : {MemoryClass::optimizer_state, MemoryClass::shards,
                                  MemoryClass::sharded_gradients, MemoryClass::gathered})
      rank.observe(std::string("bytes of ") + to_string(cls) + " that are left", live(cls));
  });
  expect_on_all_ranks(
      run, "a copy of a ShardedOptimizer, which would update the same shards, can be made", false);
  expect_no_old_values(run);
  for (const std::string cls : {"optimizer_state", "shards", "sharded_gradients", "gathered"})
    expect_on_all_ranks(run, "bytes of " + cls + " that are left", 0);
}

}  // namespace
}  // namespace fsdp
