#include "prefetching_toy.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T6_6_prefetch_lists);

MULTI_RANK_TEST(T6_6_prefetch_lists,
                a_prefetch_list_replaces_the_recorded_order_for_its_module_only) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2);
    const auto& blocks = toy.model->blocks;
    // A module has only one list for each direction. So the lists of the second round, with
    // blocks[1], replace the lists of the first round, with blocks[3].
    for (const auto& last : {blocks[3], blocks[1]}) {
      toy.prefetcher->set_modules_to_forward_prefetch(*blocks[0], {blocks[2].get(), last.get()});
      toy.prefetcher->set_modules_to_backward_prefetch(*blocks[3], {last.get()});
    }
    toy.evaluate();
    rank.observe("evaluation forward", take_calls(*rank.communicator()));
    for (const std::string step : {"first", "second"}) {
      const auto [forward, backward] = toy.step(rank);
      rank.observe(step + " forward", forward);
      rank.observe(step + " backward", backward);
    }
  });
  for (const std::string step : {"evaluation", "first", "second"}) {
    expect_on_all_ranks(run, step + " forward",
                        "all_gather root; all_gather blocks0; all_gather blocks2; "
                        "all_gather blocks1; all_gather blocks3; ");
    if (step == "evaluation") continue;
    expect_on_all_ranks(run, step + " backward",
                        "all_gather blocks3; all_gather blocks1; reduce_scatter blocks3; "
                        "all_gather blocks2; reduce_scatter blocks2; all_gather blocks0; "
                        "reduce_scatter blocks1; reduce_scatter blocks0; reduce_scatter root; ");
  }
}

MULTI_RANK_TEST(T6_6_prefetch_lists, an_empty_prefetch_list_issues_nothing) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2, 2);
    for (const auto& block : toy.model->blocks) {
      toy.prefetcher->set_modules_to_forward_prefetch(*block, {});
      toy.prefetcher->set_modules_to_backward_prefetch(*block, {});
    }
    toy.model->order = {0, 1};
    const auto seen = toy.look_at_what_is_under_way();
    for (const char* step : {"first", "second"}) {
      toy.step(rank);
      rank.observe(step, std::exchange(*seen, ""));
    }
  });
  // The text has one entry, which ends in "| ", each time the root or a block begins: first in
  // forward, then in backward. The blocks have empty lists, so they prefetch nothing. Only the root
  // has no list, so only the root prefetches, in the order of the last forward.
  expect_on_all_ranks(run, "first", "| | | | | | ");
  expect_on_all_ranks(run, "second", "blocks0 | | | | | | ");
}

MULTI_RANK_TEST(T6_6_prefetch_lists,
                units_of_a_prefetch_list_that_are_not_used_do_not_stay_unsharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 1);
    const auto& blocks = toy.model->blocks;
    toy.prefetcher->set_modules_to_forward_prefetch(*blocks[0], {blocks[3].get()});
    toy.prefetcher->set_modules_to_backward_prefetch(*blocks[0], {blocks[2].get()});
    toy.model->order = {0, 1};
    const auto unused = [&] {
      std::string names;
      for (size_t i = 3; i < toy.units.size(); ++i)
        if (toy.units[i]->state() != UnitState::sharded) names += toy.units[i]->unit() + " ";
      return names;
    };
    rank.communicator()->take_log();
    const auto loss = plain_loss(*toy.model, rank.rank());
    rank.observe("forward", take_calls(*rank.communicator()));
    rank.observe("unused after forward", unused());
    loss.backward();
    rank.observe("unused after backward", unused());
  });
  expect_on_all_ranks(run, "forward",
                      "all_gather root; all_gather blocks0; all_gather blocks3; "
                      "all_gather blocks1; ");
  expect_on_all_ranks(run, "unused after forward", "");
  expect_on_all_ranks(run, "unused after backward", "");
}

MULTI_RANK_TEST(T6_6_prefetch_lists,
                units_of_a_prefetch_list_stay_unsharded_without_reshard_after_forward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2, 2, /*reshard_after_forward=*/false);
    const auto& blocks = toy.model->blocks;
    toy.prefetcher->set_modules_to_forward_prefetch(*blocks[0], {blocks[1].get()});
    const auto under_way = toy.look_at_what_is_under_way();
    const auto loss = plain_loss(*toy.model, rank.rank());
    rank.observe("units that are under way as the root and each block begin", *under_way);
    std::string names;
    for (const auto& unit : toy.units)
      if (unit->state() == UnitState::unsharded) names += unit->unit() + " ";
    rank.observe("unsharded after forward", names);
  });
  expect_on_all_ranks(run, "units that are under way as the root and each block begin",
                      "| blocks1 | | ");
  expect_on_all_ranks(run, "unsharded after forward", "root blocks0 blocks1 ");
}

MULTI_RANK_TEST(T6_6_prefetch_lists, prefetch_lists_change_no_gradient) {
  const auto gradients = [&](bool lists) {
    return run_ranks(world_size(), [lists](TestRank& rank) {
      PrefetchingToy toy(rank, 2);
      const auto& blocks = toy.model->blocks;
      if (lists) {
        toy.prefetcher->set_modules_to_forward_prefetch(*blocks[0],
                                                        {blocks[3].get(), blocks[2].get()});
        toy.prefetcher->set_modules_to_backward_prefetch(*blocks[3], {blocks[0].get()});
      }
      rank.communicator()->take_log();
      plain_loss(*toy.model, rank.rank()).backward();
      rank.observe("gathers blocks3 before blocks1",
                   comes_before(take_calls(*rank.communicator()), "all_gather blocks3",
                                "all_gather blocks1"));
      for (const auto& unit : toy.units)
        rank.observe(unit->unit(), unit->sharded_gradient());
    });
  };
  const RankRun plain = gradients(false), listed = gradients(true);
  expect_on_all_ranks(listed, "gathers blocks3 before blocks1", true);
  for (const char* unit : {"root", "blocks0", "blocks1", "blocks2", "blocks3"})
    expect_on_each_rank(listed, unit, [&](int rank) { return plain.at(rank, unit); });
}

MULTI_RANK_TEST(T6_6_prefetch_lists,
                prefetch_lists_refuse_modules_that_are_not_units_below_the_root) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2);
    Module &root = *toy.model, &block = *toy.model->blocks[0];
    rank.observe("the root in a list", thrown_by([&] {
                   toy.prefetcher->set_modules_to_forward_prefetch(block, {&root});
                 }));
    rank.observe("a list of the root", thrown_by([&] {
                   toy.prefetcher->set_modules_to_backward_prefetch(root, {&block});
                 }));
  });
  expect_error(run, "the root in a list", {"std::invalid_argument"});
  expect_error(run, "a list of the root", {"std::invalid_argument"});
}

}  // namespace
}  // namespace fsdp
