#include "prefetching_toy.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T6_4_limit);

MULTI_RANK_TEST(T6_4_limit, at_most_limit_units_are_unsharded_besides_the_root) {
  for (const int limit : {1, 2, 3, 100}) {
    const std::string at_limit = ", limit " + std::to_string(limit) + ", the root counted";
    const RankRun run = run_ranks(world_size(), [&, limit](TestRank& rank) {
      rank.communicator();
      const int64_t before = live_bytes::now().total;
      PrefetchingToy toy(rank, limit);
      toy.step(rank);
      toy.step(rank);
      rank.observe("owned bytes", live_bytes::now().total - before);
      for (const Phase phase : {Phase::forward, Phase::backward}) {
        const int64_t unit = toy_shard_bytes(0, rank.world_size()) * rank.world_size();
        rank.observe(std::string("units at the peak of ") + to_string(phase) + at_limit,
                     live_bytes::peak(phase)[MemoryClass::gathered] / unit);
      }
    });
    const int units = 1 + std::min(limit, 4);
    expect_on_all_ranks(run, "owned bytes", toy_shard_bytes(4, world_size()));
    expect_on_all_ranks(run, "units at the peak of forward" + at_limit, units);
    expect_on_all_ranks(run, "units at the peak of backward" + at_limit, units);
  }
}

// The sentinel. It asks for no exact bytes, so a prefetch that is wrong in another way passes it.
MULTI_RANK_TEST(T6_4_limit, after_a_step_a_rank_holds_only_a_part_of_the_model) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const HeldMemory memory;
    PrefetchingToy toy(rank, 2, large_toy());
    toy.step(rank);
    toy.step(rank);
    rank.observe("what the rank holds", memory.taken());
    rank.observe("units in the recorded order", toy.prefetcher->forward_order().size());
  });
  expect_on_all_ranks(run, "units in the recorded order", 16);
  expect_part_of(run, "what the rank holds", large_toy_bytes());
  expect_no_copies(run, "what the rank holds", large_toy_bytes());
}

MULTI_RANK_TEST(T6_4_limit, a_limit_below_one_is_refused_and_changes_nothing) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const int limit : {0, -1})
      rank.observe("a limit of " + std::to_string(limit),
                   thrown_by([&] { make_prefetcher(limit); }));
    PrefetchingToy toy(rank, 2, 4);
    toy.step(rank);
    const std::string before = toy.step(rank).second;
    rank.observe("backward before", before);
    rank.observe("gathers the next unit before it reduces", gathers_ahead(before));
    rank.observe("set_limit(0)", thrown_by([&] { toy.prefetcher->set_limit(0); }));
    rank.observe("backward after", toy.step(rank).second);
  });
  for (const char* refused : {"a limit of 0", "a limit of -1", "set_limit(0)"})
    expect_error(run, refused, {"std::invalid_argument"});
  expect_on_all_ranks(run, "gathers the next unit before it reduces", true);
  expect_on_each_rank(run, "backward after", [&](int r) { return run.at(r, "backward before"); });
}

MULTI_RANK_TEST(T6_4_limit, a_limit_of_one_prefetches_nothing) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 1, 2);
    toy.step(rank);
    IssueLog log(rank, toy);
    plain_loss(*toy.model, rank.rank()).backward();
    log.observe("the end of backward");
    rank.observe("units in the recorded order", toy.prefetcher->forward_order().size());
  });
  expect_on_all_ranks(run, "units in the recorded order", 2);
  expect_issued(run, {{"forward of root", "all_gather root; "},
                      {"forward of blocks0", "all_gather blocks0; "},
                      {"forward of blocks1", "all_gather blocks1; "},
                      {"backward of root", ""},
                      {"backward of blocks1", "all_gather blocks1; "},
                      {"backward of blocks0", "reduce_scatter blocks1; all_gather blocks0; "},
                      {"the end of backward", "reduce_scatter blocks0; reduce_scatter root; "}});
}

}  // namespace
}  // namespace fsdp
