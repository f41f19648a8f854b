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

// This test is the sentinel of task 6: until it passes, the task gets no points. It compares no
// exact numbers of bytes, so a prefetcher with other mistakes can pass it.
MULTI_RANK_TEST(T6_4_limit, after_a_step_with_prefetch_a_rank_holds_only_a_part_of_the_model) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const RetainedMemory memory;
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

MULTI_RANK_TEST(T6_4_limit, setting_a_limit_below_one_throws_and_changes_nothing) {
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

// Returns what a step with `limit` must issue if the step before used the same four blocks.
Issues issues_of_a_step(int limit) {
  const auto call = [](const std::string& name, int block) {
    return block < 0 || block > 3 ? "" : name + " blocks" + std::to_string(block) + "; ";
  };
  const int ahead = limit - 1;
  std::string first = "all_gather root; ", last;
  for (int i = 0; i < ahead; ++i)
    first += call("all_gather", i);
  for (int i = 0; i <= ahead; ++i)
    last += call("all_gather", 3 - i);
  Issues issues{{"forward of root", first}, {"backward of blocks3", last}};
  for (int block = 0; block < 4; ++block)
    issues.emplace_back("forward of blocks" + std::to_string(block),
                        call("all_gather", block + ahead));
  for (int block = 2; block >= 0; --block)
    issues.emplace_back("backward of blocks" + std::to_string(block),
                        call("reduce_scatter", block + 1) + call("all_gather", block - ahead));
  issues.emplace_back("the end of backward", "reduce_scatter blocks0; reduce_scatter root; ");
  return issues;
}

MULTI_RANK_TEST(T6_4_limit, a_new_prefetch_limit_applies_in_the_next_forward_and_backward) {
  const std::vector<int> limits{1, 3, 2, 100, 1, 2};
  const auto prefix = [&](size_t i) {
    return "limit " + std::to_string(limits[i]) + (i == 0 ? "" : " after ") +
           (i == 0 ? "" : std::to_string(limits[i - 1])) + ": ";
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    PrefetchingToy toy(rank, 2);
    toy.step(rank);
    IssueLog log(rank, toy);
    for (size_t i = 0; i < limits.size(); ++i) {
      toy.prefetcher->set_limit(limits[i]);
      log.prefix = prefix(i);
      plain_loss(*toy.model, rank.rank()).backward();
      log.observe("the end of backward");
      toy.drop_gradients();
    }
  });
  for (size_t i = 0; i < limits.size(); ++i)
    expect_issued(run, issues_of_a_step(limits[i]), prefix(i));
}

// Runs a step that begins with limit `from`. The limit is `in_forward` from the forward of blocks0
// on, and `in_backward` from the backward of blocks3 on.
RankRun changes_within_a_step(int world_size, int from, int in_forward, int in_backward) {
  return run_ranks(world_size, [=](TestRank& rank) {
    PrefetchingToy toy(rank, from);
    toy.step(rank);
    toy.model->blocks[0]->register_forward_pre_hook([&](Module&, const at::Tensor&) {
      toy.prefetcher->set_limit(in_forward);
      return at::Tensor();
    });
    toy.model->blocks[3]->register_full_backward_pre_hook(
        [&](Module&) { toy.prefetcher->set_limit(in_backward); });
    IssueLog log(rank, toy);
    plain_loss(*toy.model, rank.rank()).backward();
  });
}

MULTI_RANK_TEST(T6_4_limit, a_new_prefetch_limit_applies_from_the_next_unit_on) {
  expect_issued(
      changes_within_a_step(world_size(), 1, 3, 1),
      {{"forward of blocks0", "all_gather blocks0; "},
       {"forward of blocks1",
        "all_gather blocks1; all_gather blocks2; all_gather "
        "blocks3; "},
       {"forward of blocks2", ""},
       {"backward of blocks3", "all_gather blocks3; all_gather blocks2; all_gather blocks1; "},
       {"backward of blocks2", "reduce_scatter blocks3; "},
       {"backward of blocks1", "reduce_scatter blocks2; "},
       {"backward of blocks0", "reduce_scatter blocks1; all_gather blocks0; "}});
  expect_issued(
      changes_within_a_step(world_size(), 3, 1, 2),
      {{"forward of blocks0", "all_gather blocks2; "},
       {"forward of blocks1", ""},
       {"forward of blocks2", ""},
       {"forward of blocks3", "all_gather blocks3; "},
       {"backward of blocks3", "all_gather blocks3; "},
       {"backward of blocks2", "reduce_scatter blocks3; all_gather blocks2; all_gather blocks1; "},
       {"backward of blocks1", "reduce_scatter blocks2; all_gather blocks0; "},
       {"backward of blocks0", "reduce_scatter blocks1; "}});
}

}  // namespace
}  // namespace fsdp
