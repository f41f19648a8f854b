#include <type_traits>

#include "prefetching_toy.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T6_1_record);

MULTI_RANK_TEST(T6_1_record, the_forward_order_is_recorded_with_repeats) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 1);
    toy.model->order = {0, 2, 0, 3, 1};
    toy.evaluate();
    rank.observe("order of a forward without gradients", order_text(*toy.prefetcher));
    toy.model->order = {1, 0};
    toy.evaluate();
    rank.observe("order of the second forward", order_text(*toy.prefetcher));
  });
  expect_on_all_ranks(run, "order of a forward without gradients",
                      "blocks0 blocks2 blocks0 blocks3 blocks1 ");
  expect_on_all_ranks(run, "order of the second forward", "blocks1 blocks0 ");
}

MULTI_RANK_TEST(T6_1_record, hooks_keep_the_prefetcher_alive_as_long_as_the_model) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.observe("a copy of a Prefetcher, which the hooks would not hold, can be made",
                 std::is_copy_constructible_v<Prefetcher>);
    auto of_a_unit = make_prefetcher(1), of_the_root = make_prefetcher(1);
    const std::weak_ptr<Prefetcher> unit = of_a_unit, root = of_the_root;
    {
      ShardedToy toy(rank, std::make_shared<ToyModel>(1));
      of_a_unit->add(*toy.model->blocks[0], toy.units[1]);
      of_the_root->add_root(*toy.model);
      of_a_unit.reset();
      of_the_root.reset();
      rank.observe("hooks on a unit's module keep the Prefetcher", !unit.expired());
      rank.observe("hooks on the root keep the Prefetcher", !root.expired());
    }
    rank.observe("a Prefetcher is left after the model", !unit.expired() || !root.expired());
  });
  expect_on_all_ranks(run, "a copy of a Prefetcher, which the hooks would not hold, can be made",
                      false);
  expect_on_all_ranks(run, "hooks on a unit's module keep the Prefetcher", true);
  expect_on_all_ranks(run, "hooks on the root keep the Prefetcher", true);
  expect_on_all_ranks(run, "a Prefetcher is left after the model", false);
}

MULTI_RANK_SUITE(T6_2_forward);

bool gathers(const std::string& calls, const std::string& unit) {
  return calls.find("all_gather " + unit + ";") != std::string::npos;
}

const Issues kNoPrefetch{{"forward of root", "all_gather root; "},
                         {"forward of blocks0", "all_gather blocks0; "},
                         {"forward of blocks1", "all_gather blocks1; "},
                         {"forward of blocks2", "all_gather blocks2; "},
                         {"forward of blocks3", "all_gather blocks3; "}};

MULTI_RANK_TEST(T6_2_forward, the_next_all_gather_is_issued_before_a_unit_computes) {
  const std::vector<std::pair<int, Issues>> expected{
      {3,
       {{"forward of root", "all_gather root; all_gather blocks0; all_gather blocks1; "},
        {"forward of blocks0", "all_gather blocks2; "},
        {"forward of blocks1", "all_gather blocks3; "},
        {"forward of blocks2", ""},
        {"forward of blocks3", ""}}},
      {2,
       {{"forward of root", "all_gather root; all_gather blocks0; "},
        {"forward of blocks0", "all_gather blocks1; "},
        {"forward of blocks1", "all_gather blocks2; "},
        {"forward of blocks2", "all_gather blocks3; "},
        {"forward of blocks3", ""}}},
      {100,  // this limit is above the number of units
       {{"forward of root",
         "all_gather root; all_gather blocks0; all_gather blocks1; all_gather blocks2; "
         "all_gather blocks3; "},
        {"forward of blocks0", ""},
        {"forward of blocks1", ""},
        {"forward of blocks2", ""},
        {"forward of blocks3", ""}}}};
  for (const auto& [limit, issues] : expected) {
    const std::string prefix = "evaluation with limit " + std::to_string(limit) + ": ";
    const RankRun run = run_ranks(world_size(), [&, limit = limit](TestRank& rank) {
      // blocks1 is frozen. Forward prefetches it like the other units.
      PrefetchingToy toy(rank, limit, toy_model(4, /*frozen=*/1));
      toy.evaluate();
      IssueLog log(rank, toy);
      log.prefix = prefix;
      toy.evaluate();
    });
    expect_issued(run, issues, prefix);
  }
}

MULTI_RANK_TEST(T6_2_forward, the_first_step_prefetches_nothing) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2);
    IssueLog log(rank, toy);
    toy.evaluate();
    log.prefix = "second step: ";
    toy.evaluate();
  });
  expect_issued(run, kNoPrefetch);
  expect_issued(run, {{"forward of root", "all_gather root; all_gather blocks0; "}},
                "second step: ");
}

// Runs two forwards that use the blocks in this order. Observes the calls that the second forward
// issues.
RankRun second_forward(int world_size, int limit, const std::vector<int>& order) {
  return run_ranks(world_size, [&](TestRank& rank) {
    PrefetchingToy toy(rank, limit);
    toy.model->order = order;
    toy.evaluate();
    const IssueLog log(rank, toy);
    toy.evaluate();
  });
}

// When the forward of blocks1 begins, blocks0 and blocks2 are sharded. The forward uses blocks0
// next, for the second time, and then blocks2.
MULTI_RANK_TEST(T6_2_forward, forward_prefetches_units_in_the_order_in_which_it_needs_them) {
  expect_issued(second_forward(world_size(), 3, {0, 1, 0, 2}),
                {{"forward of blocks1", "all_gather blocks0; all_gather blocks2; "}});
}

MULTI_RANK_TEST(T6_2_forward,
                forward_issues_at_each_use_of_a_unit_the_units_that_came_next_in_the_last_forward) {
  expect_issued(second_forward(world_size(), 3, {0, 1, 0, 2, 1, 3}),
                {{"forward of root", "all_gather root; all_gather blocks0; all_gather blocks1; "},
                 {"forward of blocks0", ""},
                 {"forward of blocks1", "all_gather blocks0; all_gather blocks2; "},
                 {"forward of blocks0 (2)", "all_gather blocks1; "},
                 {"forward of blocks2", "all_gather blocks3; "},
                 {"forward of blocks1 (2)", ""},
                 {"forward of blocks3", ""}});
}

MULTI_RANK_TEST(T6_2_forward, a_limit_above_the_number_of_uses_prefetches_each_use) {
  expect_issued(second_forward(world_size(), 100, {0, 1, 0, 1}),
                {{"forward of root", "all_gather root; all_gather blocks0; all_gather blocks1; "},
                 {"forward of blocks0", ""},
                 {"forward of blocks1", "all_gather blocks0; "},
                 {"forward of blocks0 (2)", "all_gather blocks1; "},
                 {"forward of blocks1 (2)", ""}});
}

MULTI_RANK_TEST(T6_2_forward, the_second_forward_in_a_new_order_prefetches_this_order) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2);
    toy.evaluate();
    toy.model->order = {3, 2, 1, 0};
    toy.evaluate();
    const IssueLog log(rank, toy);
    toy.evaluate();
  });
  expect_issued(run, {{"forward of root", "all_gather root; all_gather blocks3; "},
                      {"forward of blocks3", "all_gather blocks2; "},
                      {"forward of blocks2", "all_gather blocks1; "},
                      {"forward of blocks1", "all_gather blocks0; "},
                      {"forward of blocks0", ""}});
}

MULTI_RANK_TEST(T6_2_forward, the_prefetchers_of_two_models_record_separate_orders) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy first(rank, 2, 2), second(rank, 2, 2);
    second.model->order = {1, 0};
    first.evaluate();
    second.evaluate();
    IssueLog log(rank, first);
    first.evaluate();
    IssueLog log_of_second(rank, second);
    log_of_second.prefix = "second model: ";
    second.evaluate();
  });
  expect_issued(run, {{"forward of root", "all_gather root; all_gather blocks0; "},
                      {"forward of blocks0", "all_gather blocks1; "},
                      {"forward of blocks1", ""}});
  expect_issued(run,
                {{"forward of root", "all_gather root; all_gather blocks1; "},
                 {"forward of blocks1", "all_gather blocks0; "},
                 {"forward of blocks0", ""}},
                "second model: ");
}

MULTI_RANK_TEST(T6_2_forward, forward_prefetch_stops_where_the_order_differs_from_the_last) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2);
    toy.evaluate();
    toy.model->order = {3, 2};
    rank.communicator()->take_log();
    toy.evaluate();
    const std::string calls = take_calls(*rank.communicator());
    rank.observe("gathers blocks0, with which the last forward began", gathers(calls, "blocks0"));
    rank.observe("gathers blocks1, which neither ran nor comes after what runs",
                 gathers(calls, "blocks1"));
  });
  expect_on_all_ranks(run, "gathers blocks0, with which the last forward began", true);
  expect_on_all_ranks(run, "gathers blocks1, which neither ran nor comes after what runs", false);
}

MULTI_RANK_TEST(T6_2_forward, forward_prefetch_works_if_a_forward_is_longer_than_the_last) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 3);
    toy.model->order = {0, 1};
    toy.evaluate();
    toy.model->order = {0, 1, 2, 3};
    const IssueLog log(rank, toy);
    toy.evaluate();
  });
  expect_issued(run,
                {{"forward of root", "all_gather root; all_gather blocks0; all_gather blocks1; "},
                 {"forward of blocks0", ""},
                 {"forward of blocks1", ""},
                 {"forward of blocks2", "all_gather blocks2; "},
                 {"forward of blocks3", "all_gather blocks3; "}});
}

MULTI_RANK_TEST(T6_2_forward, prefetch_follows_the_last_forward_even_if_it_was_shorter) {
  const std::vector<std::vector<int>> shorter{{0, 1}, {2, 3}, {1}, {}};
  const auto prefix = [](const std::vector<int>& order) {
    return "second forward of the blocks " + nlohmann::json(order).dump() + ": ";
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    PrefetchingToy toy(rank, 3);
    IssueLog log(rank, toy);
    for (const auto& order : shorter) {
      log.prefix = "forward of four blocks, and the first of the blocks ";
      log.prefix += nlohmann::json(order).dump() + ": ";
      toy.model->order = {0, 1, 2, 3};
      toy.evaluate();
      toy.model->order = order;
      toy.evaluate();
      rank.communicator()->take_log();
      log.prefix = prefix(order);
      toy.evaluate();
      log.observe("the end");
    }
  });
  for (const auto& order : shorter) {
    std::string all = "all_gather root; ";
    Issues issues{{"the end", ""}};
    for (const int block : order) {
      all += "all_gather blocks" + std::to_string(block) + "; ";
      issues.emplace_back("forward of blocks" + std::to_string(block), "");
    }
    issues.emplace_back("forward of root", all);
    expect_issued(run, issues, prefix(order));
  }
}

MULTI_RANK_TEST(T6_2_forward, no_prefetched_unit_stays_unsharded_if_the_order_changes) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 3);
    toy.evaluate();
    toy.model->order = {0, 3};
    rank.communicator()->take_log();
    const auto output = (*toy.model)(toy_tokens(0));
    rank.observe("gathers blocks1 ahead", gathers(take_calls(*rank.communicator()), "blocks1"));
    rank.observe("units gathered afterwards", toy.gathered());
  });
  expect_on_all_ranks(run, "gathers blocks1 ahead", true);
  expect_on_all_ranks(run, "units gathered afterwards", "root ");
}

MULTI_RANK_TEST(T6_2_forward,
                prefetch_follows_the_last_forward_as_far_as_it_came_even_if_it_threw) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2);
    toy.evaluate();
    toy.model->order = {2, 1, 0};
    toy.model->blocks[1]->fails = true;
    rank.observe("what forward throws", thrown_by([&] { toy.evaluate(); }));
    toy.model->blocks[1]->fails = false;
    rank.observe("order of the forward that threw", order_text(*toy.prefetcher));
    const IssueLog log(rank, toy);
    toy.evaluate();
  });
  expect_error(run, "what forward throws", {"std::runtime_error"});
  expect_on_all_ranks(run, "order of the forward that threw", "blocks2 blocks1 ");
  expect_issued(run, {{"forward of root", "all_gather root; all_gather blocks2; "},
                      {"forward of blocks2", "all_gather blocks1; "},
                      {"forward of blocks1", ""},
                      {"forward of blocks0", "all_gather blocks0; "}});
}

MULTI_RANK_TEST(T6_2_forward, forward_does_not_wait_for_prefetched_all_gathers_of_later_units) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 3);
    toy.evaluate();
    const auto under_way = toy.look_at_what_is_under_way();
    toy.evaluate();
    rank.observe("units that are under way as the root and each block begin", *under_way);
  });
  expect_on_all_ranks(run, "units that are under way as the root and each block begin",
                      "blocks0 blocks1 | blocks1 blocks2 | blocks2 blocks3 | blocks3 | | ");
}

MULTI_RANK_TEST(T6_2_forward, the_end_of_forward_frees_no_unit_that_stays_unsharded_for_backward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 3, 4, /*reshard_after_forward=*/false);
    toy.evaluate();
    toy.model->order = {0, 1, 3};
    rank.communicator()->take_log();
    const auto output = (*toy.model)(toy_tokens(0));
    rank.observe("gathers blocks2 ahead", gathers(take_calls(*rank.communicator()), "blocks2"));
    rank.observe("units gathered afterwards", toy.gathered());
  });
  expect_on_all_ranks(run, "gathers blocks2 ahead", true);
  expect_on_all_ranks(run, "units gathered afterwards", "root blocks0 blocks1 blocks3 ");
}

MULTI_RANK_TEST(T6_2_forward, no_prefetched_unit_stays_unsharded_after_an_exception_in_forward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 3);
    toy.evaluate();
    toy.model->blocks[1]->fails = true;
    rank.communicator()->take_log();
    rank.observe("what forward throws", thrown_by([&] { (*toy.model)(toy_tokens(0)); }));
    rank.observe("gathers blocks2 ahead", gathers(take_calls(*rank.communicator()), "blocks2"));
    rank.observe("units gathered afterwards", toy.gathered());
  });
  expect_error(run, "what forward throws", {"std::runtime_error"});
  expect_on_all_ranks(run, "gathers blocks2 ahead", true);
  expect_on_all_ranks(run, "units gathered afterwards", "");
}

}  // namespace
}  // namespace fsdp
