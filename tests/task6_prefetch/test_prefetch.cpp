#include "prefetching_toy.h"

namespace fsdp {
namespace {

std::string order_text(const Prefetcher& prefetcher) {
  std::string text;
  for (const auto& unit : prefetcher.forward_order())
    text += unit->unit() + " ";
  return text;
}

MULTI_RANK_SUITE(T6_1_record);

TEST_P(T6_1_record, the_forward_order_is_recorded_with_repeats) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy sharded(rank, 1);
    const at::NoGradGuard no_grad;  // no backward will follow
    sharded.model->order = {0, 2, 0, 3, 1};
    (*sharded.model)(toy_tokens(0));
    rank.observe("order", order_text(*sharded.prefetcher));
    sharded.model->order = {1, 0};
    (*sharded.model)(toy_tokens(0));
    rank.observe("order of the second forward", order_text(*sharded.prefetcher));
  });
  expect_on_all_ranks(run, "order", "blocks0 blocks2 blocks0 blocks3 blocks1 ");
  expect_on_all_ranks(run, "order of the second forward", "blocks1 blocks0 ");
}

MULTI_RANK_SUITE(T6_2_forward);

// What was issued before the block began to compute.
std::vector<std::string> calls_before_each_block(TestRank& rank, PrefetchingToy& sharded) {
  std::vector<std::string> seen;
  for (const auto& block : sharded.model->blocks) {
    block->register_forward_pre_hook([&](Module&, const at::Tensor&) {
      seen.push_back(take_calls(*rank.communicator()));
      return at::Tensor();
    });
  }
  sharded.step(rank);
  return seen;
}

TEST_P(T6_2_forward, the_next_all_gather_is_issued_before_a_unit_computes) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy sharded(rank, 2);
    sharded.step(rank);
    rank.observe("calls before blocks", calls_before_each_block(rank, sharded));
  });
  expect_on_all_ranks(run, "calls before blocks",
                      {"all_gather root; all_gather blocks0; all_gather blocks1; ",
                       "all_gather blocks2; ", "all_gather blocks3; ", ""});
}

TEST_P(T6_2_forward, the_first_step_prefetches_nothing) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy sharded(rank, 2);
    rank.observe("calls before blocks", calls_before_each_block(rank, sharded));
  });
  expect_on_all_ranks(run, "calls before blocks",
                      {"all_gather root; all_gather blocks0; ", "all_gather blocks1; ",
                       "all_gather blocks2; ", "all_gather blocks3; "});
}

TEST_P(T6_2_forward, no_prefetched_unit_stays_unsharded_if_the_order_changes) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy sharded(rank, 3);
    sharded.step(rank);
    sharded.model->order = {0, 3};
    const auto output = (*sharded.model)(toy_tokens(0));
    rank.observe("units gathered afterwards", sharded.gathered());
  });
  expect_on_all_ranks(run, "units gathered afterwards", "root ");
}

TEST_P(T6_2_forward, prefetching_stops_where_the_order_changes) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy sharded(rank, 2);
    sharded.step(rank);
    sharded.model->order = {3, 2};
    const std::string calls = sharded.step(rank).first;
    rank.observe("gathers blocks1, which neither ran nor comes after what runs",
                 calls.find("blocks1") != std::string::npos);
  });
  expect_on_all_ranks(run, "gathers blocks1, which neither ran nor comes after what runs", false);
}

TEST_P(T6_2_forward, a_new_order_is_prefetched_the_second_time) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy sharded(rank, 2);
    sharded.step(rank);
    sharded.model->order = {3, 2, 1, 0};
    sharded.step(rank);
    rank.observe("calls before blocks", calls_before_each_block(rank, sharded));
  });
  expect_on_all_ranks(run, "calls before blocks",
                      {"all_gather root; all_gather blocks3; all_gather blocks2; ",
                       "all_gather blocks1; ", "all_gather blocks0; ", ""});
}

TEST_P(T6_2_forward, after_an_exception_no_unit_stays_unsharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy sharded(rank, 3);
    sharded.step(rank);
    sharded.model->blocks[0]->fails = true;
    EXPECT_THROW((*sharded.model)(toy_tokens(0)), std::runtime_error);
    rank.observe("units gathered afterwards", sharded.gathered());
  });
  expect_on_all_ranks(run, "units gathered afterwards", "");
}

MULTI_RANK_SUITE(T6_3_backward);

TEST_P(T6_3_backward, the_next_all_gather_is_issued_before_the_reduce_scatter) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy sharded(rank, 2);
    rank.observe("calls of the first backward", sharded.step(rank).second);
    rank.observe("calls of the second backward", sharded.step(rank).second);
  });
  const std::string expected =
      "all_gather blocks3; all_gather blocks2; reduce_scatter blocks3; "
      "all_gather blocks1; reduce_scatter blocks2; all_gather blocks0; reduce_scatter blocks1; "
      "reduce_scatter blocks0; reduce_scatter root; ";
  expect_on_all_ranks(run, "calls of the first backward", expected);
  expect_on_all_ranks(run, "calls of the second backward", expected);
}

TEST_P(T6_3_backward, a_forward_without_grad_mode_does_not_change_the_next_backward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy sharded(rank, 2);
    rank.observe("calls of backward", sharded.step(rank).second);
    {
      const at::NoGradGuard no_grad;
      (*sharded.model)(toy_tokens(0));
    }
    rank.observe("calls of backward after an evaluation", sharded.step(rank).second);
  });
  expect_on_all_ranks(run, "calls of backward after an evaluation", run.at(0, "calls of backward"));
}

TEST_P(T6_3_backward, a_broken_pass_does_not_change_the_next_backward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy sharded(rank, 2);
    rank.observe("calls of backward", sharded.step(rank).second);
    {
      auto bias = sharded.model->blocks[3]->bias;
      const auto hook = bias.register_hook(
          [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no"); });
      EXPECT_THROW(sharded.step(rank), std::runtime_error);
      bias.remove_hook(hook);
    }
    rank.observe("calls of backward after one that broke off", sharded.step(rank).second);
  });
  expect_on_all_ranks(run, "calls of backward after one that broke off",
                      run.at(0, "calls of backward"));
}

TEST_P(T6_3_backward, a_unit_used_twice_is_unsharded_once_and_reduced_once) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy sharded(rank, 2, 3);
    sharded.model->order = {0, 1, 0, 2};
    rank.observe("calls of backward", sharded.step(rank).second);
  });
  // blocks0 stays gathered from its second use to its first: it reduces once, after both.
  expect_on_all_ranks(run, "calls of backward",
                      "all_gather blocks2; all_gather blocks0; reduce_scatter blocks2; "
                      "all_gather blocks1; reduce_scatter blocks1; "
                      "reduce_scatter blocks0; reduce_scatter root; ");
}

TEST_P(T6_3_backward, prefetching_does_not_change_gradients) {
  const auto gradients = [&](int limit) {
    return run_ranks(world_size(), [limit](TestRank& rank) {
      PrefetchingToy sharded(rank, limit);
      sharded.step(rank);
      plain_loss(*sharded.model, rank.rank()).backward();
      for (const auto& unit : sharded.units) {
        rank.observe(unit->unit(), unit->sharded_gradient());
      }
    });
  };
  const RankRun with = gradients(3);
  const RankRun without = gradients(1);
  for (const std::string unit : {"root", "blocks0", "blocks3"}) {
    for (int r = 0; r < world_size(); ++r)
      expect_on_rank(with, r, unit, without.at(r, unit));
  }
}

MULTI_RANK_SUITE(T6_4_limit);

TEST_P(T6_4_limit, at_most_limit_units_are_unsharded_besides_the_root) {
  for (const int limit : {1, 2, 3}) {
    SCOPED_TRACE("limit " + std::to_string(limit));
    const RankRun run = run_ranks(world_size(), [limit](TestRank& rank) {
      rank.communicator();
      const int64_t before = live_bytes::now().total;
      PrefetchingToy sharded(rank, limit);
      sharded.step(rank);
      sharded.step(rank);
      rank.observe("owned bytes", live_bytes::now().total - before);
      for (const Phase phase : {Phase::forward, Phase::backward}) {
        const int64_t unit = toy_shard_bytes(0, rank.world_size()) * rank.world_size();
        rank.observe(std::string("units at the peak of ") + to_string(phase) + ", the root counted",
                     live_bytes::peak(phase)[MemoryClass::gathered] / unit);
      }
    });
    expect_on_all_ranks(run, "owned bytes", toy_shard_bytes(4, world_size()));
    expect_on_all_ranks(run, "units at the peak of forward, the root counted", 1 + limit);
    expect_on_all_ranks(run, "units at the peak of backward, the root counted", 1 + limit);
  }
}

// The sentinel. It asks for no exact bytes, so a prefetch that is wrong in another way passes it.
TEST_P(T6_4_limit, after_a_step_a_rank_holds_only_a_part_of_the_model) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    PrefetchingToy sharded(rank, 2);
    sharded.step(rank);
    sharded.step(rank);
    rank.observe("bytes that the rank holds", live_bytes::now().total - before);
  });
  expect_part_of(run, "bytes that the rank holds", toy_shard_bytes(4, world_size()) * world_size());
}

TEST_P(T6_4_limit, a_limit_below_one_is_refused) {
  run_ranks(world_size(), [](TestRank&) {
    for (const int limit : {0, -1})
      EXPECT_THROW(std::make_shared<Prefetcher>(limit), std::invalid_argument) << limit;
  });
}

TEST_P(T6_4_limit, a_limit_of_one_prefetches_nothing) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy sharded(rank, 1, 2);
    sharded.step(rank);
    const auto [forward, backward] = sharded.step(rank);
    rank.observe("forward", forward);
    rank.observe("backward", backward);
  });
  expect_on_all_ranks(run, "forward", "all_gather root; all_gather blocks0; all_gather blocks1; ");
  expect_on_all_ranks(run, "backward",
                      "all_gather blocks1; reduce_scatter blocks1; all_gather blocks0; "
                      "reduce_scatter blocks0; reduce_scatter root; ");
}

}  // namespace
}  // namespace fsdp
