#include <algorithm>

#include "prefetching_toy.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T6_3_backward);

// The collectives that backward issues for four blocks that are called in the order of their
// numbers, with limit 2.
const Issues kBackwardAhead{
    {"backward of root", ""},
    {"backward of blocks3", "all_gather blocks3; all_gather blocks2; "},
    {"backward of blocks2", "reduce_scatter blocks3; all_gather blocks1; "},
    {"backward of blocks1", "reduce_scatter blocks2; all_gather blocks0; "},
    {"backward of blocks0", "reduce_scatter blocks1; "},
    {"the end of backward", "reduce_scatter blocks0; reduce_scatter root; "}};

// Runs backward of `loss`. Observes in `log` the calls that the backward pass issues.
void backward(TestRank& rank, const PrefetchingToy& toy, IssueLog& log, const at::Tensor& loss) {
  rank.communicator()->take_log();
  loss.backward();
  log.observe("the end of backward");
  toy.drop_gradients();
}

void step(TestRank& rank, const PrefetchingToy& toy, IssueLog& log) {
  backward(rank, toy, log, plain_loss(*toy.model, rank.rank()));
}

MULTI_RANK_TEST(T6_3_backward, the_end_of_backward_does_not_change_the_recorded_forward_order) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const PrefetchingToy toy(rank, 2);
    plain_loss(*toy.model, rank.rank()).backward();
    rank.observe("forward_order() after the end of backward", order_text(*toy.prefetcher));
  });
  expect_on_all_ranks(run, "forward_order() after the end of backward",
                      "blocks0 blocks1 blocks2 blocks3 ");
}

MULTI_RANK_TEST(T6_3_backward, the_next_all_gather_is_issued_before_the_reduce_scatter) {
  const std::vector<std::pair<int, Issues>> expected{
      {3,
       {{"backward of root", ""},
        {"backward of blocks3", "all_gather blocks3; all_gather blocks2; all_gather blocks1; "},
        {"backward of blocks2", "reduce_scatter blocks3; all_gather blocks0; "},
        {"backward of blocks1", "reduce_scatter blocks2; "},
        {"backward of blocks0", "reduce_scatter blocks1; "},
        {"the end of backward", "reduce_scatter blocks0; reduce_scatter root; "}}},
      {2, kBackwardAhead},
      {100,  // this limit is above the number of units
       {{"backward of root", ""},
        {"backward of blocks3",
         "all_gather blocks3; all_gather blocks2; all_gather blocks1; all_gather blocks0; "},
        {"backward of blocks2", "reduce_scatter blocks3; "},
        {"backward of blocks1", "reduce_scatter blocks2; "},
        {"backward of blocks0", "reduce_scatter blocks1; "},
        {"the end of backward", "reduce_scatter blocks0; reduce_scatter root; "}}}};
  for (const auto& [limit, issues] : expected) {
    const std::string prefix = "limit " + std::to_string(limit) + ", ";
    const RankRun run = run_ranks(world_size(), [&, limit = limit](TestRank& rank) {
      PrefetchingToy toy(rank, limit);
      IssueLog log(rank, toy);
      for (const std::string number : {"first step: ", "second step: "}) {
        log.prefix = prefix + number;
        step(rank, toy, log);
      }
    });
    expect_issued(run, issues, prefix + "first step: ");
    expect_issued(run, issues, prefix + "second step: ");
  }
}

MULTI_RANK_TEST(T6_3_backward, a_forward_without_grad_mode_does_not_change_the_next_backward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2);
    toy.evaluate();
    IssueLog log(rank, toy);
    log.prefix = "evaluation before the step: ";
    step(rank, toy, log);
    const auto loss = plain_loss(*toy.model, rank.rank());
    toy.model->order = {3, 1};
    toy.evaluate();
    log.prefix = "evaluation between forward and backward: ";
    backward(rank, toy, log, loss);
  });
  expect_issued(run, kBackwardAhead, "evaluation before the step: ");
  Issues expected = kBackwardAhead;
  // The evaluation has resharded the root, so backward gathers it again.
  expected[0].second = "all_gather root; ";
  expect_issued(run, expected, "evaluation between forward and backward: ");
}

MULTI_RANK_TEST(T6_3_backward, backward_does_not_wait_for_units_that_are_issued_ahead) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 3);
    // This call registers backward hooks. It must come before forward, because backward hooks run
    // only for forward calls after their registration.
    const auto under_way = toy.look_at_what_is_under_way();
    const auto loss = plain_loss(*toy.model, rank.rank());
    under_way->clear();
    loss.backward();
    rank.observe("units that are under way as the root and each block come back", *under_way);
  });
  expect_on_all_ranks(run, "units that are under way as the root and each block come back",
                      "| blocks1 blocks2 | blocks0 blocks1 | blocks0 | | ");
}

MULTI_RANK_TEST(T6_3_backward,
                backward_issues_at_each_use_of_a_unit_the_unit_that_forward_used_before_it) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2, 3);
    toy.model->order = {0, 1, 0, 2};
    IssueLog log(rank, toy);
    step(rank, toy, log);
  });
  // blocks0 stays gathered from its second use to its first, and is reduced once, after both.
  expect_issued(run, {{"backward of blocks2", "all_gather blocks2; all_gather blocks0; "},
                      {"backward of blocks0", "reduce_scatter blocks2; all_gather blocks1; "},
                      {"backward of blocks1", ""},
                      {"backward of blocks0 (2)", "reduce_scatter blocks1; "},
                      {"the end of backward", "reduce_scatter blocks0; reduce_scatter root; "}});
}

// A block that first calls another block, `inner`, which is a unit too, and then computes.
struct OuterBlock : ToyBlock {
  explicit OuterBlock(std::shared_ptr<ToyBlock> inner)
      : ToyBlock(7, 200), inner(std::move(inner)) {}
  at::Tensor forward(at::Tensor x) override { return ToyBlock::forward((*inner)(x)); }
  std::shared_ptr<ToyBlock> inner;
};

MULTI_RANK_TEST(T6_3_backward, backward_unshards_an_outer_unit_before_the_unit_inside_it) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto model = std::make_shared<ToyModel>(3);
    model->blocks[0] = std::make_shared<OuterBlock>(model->blocks[1]);
    model->order = {0, 2};
    PrefetchingToy toy(rank, 2, model);
    IssueLog log(rank, toy);
    step(rank, toy, log);
  });
  // The backward of blocks0 begins before that of blocks1, which it calls, and ends after it.
  expect_issued(run, {{"backward of blocks2", "all_gather blocks2; all_gather blocks0; "},
                      {"backward of blocks0", "reduce_scatter blocks2; all_gather blocks1; "},
                      {"backward of blocks1", ""}});
}

MULTI_RANK_TEST(T6_3_backward, backward_prefetch_skips_a_unit_whose_output_is_not_in_the_loss) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2);
    toy.model->order = {0, 1, 2};
    // blocks3 runs last in forward. Its output has no part in the loss, so its backward does not
    // run.
    toy.model->blocks[2]->register_forward_hook([&](Module&, const at::Tensor& output) {
      (*toy.model->blocks[3])(output);
      return at::Tensor();
    });
    IssueLog log(rank, toy);
    step(rank, toy, log);
  });
  expect_issued(run, {{"backward of blocks2", "all_gather blocks2; all_gather blocks1; "},
                      {"backward of blocks1", "reduce_scatter blocks2; all_gather blocks0; "},
                      {"backward of blocks0", "reduce_scatter blocks1; "}});
}

MULTI_RANK_TEST(T6_3_backward, backward_prefetch_skips_a_unit_that_reads_no_parameter) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2, shifting_toy(4));
    IssueLog log(rank, toy);
    step(rank, toy, log);
  });
  expect_issued(run, {{"backward of blocks3", "all_gather blocks3; all_gather blocks2; "},
                      {"backward of blocks2", "reduce_scatter blocks3; all_gather blocks0; "},
                      {"backward of blocks1", "reduce_scatter blocks2; "},
                      {"backward of blocks0", "reduce_scatter blocks1; "},
                      {"the end of backward", "reduce_scatter blocks0; reduce_scatter root; "}});
}

MULTI_RANK_TEST(T6_3_backward, backward_prefetch_skips_a_frozen_unit_that_it_does_not_reach) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto model = toy_model(4, /*frozen=*/0);
    // The embedding and blocks0 are frozen, so backward does not reach blocks0.
    model->embedding.set_requires_grad(false);
    PrefetchingToy toy(rank, 2, model);
    IssueLog log(rank, toy);
    step(rank, toy, log);
  });
  expect_issued(run, {{"backward of blocks2", "reduce_scatter blocks3; all_gather blocks1; "},
                      {"backward of blocks1", "reduce_scatter blocks2; "},
                      {"the end of backward", "reduce_scatter blocks1; reduce_scatter root; "}});
}

MULTI_RANK_TEST(T6_3_backward, backward_prefetches_a_frozen_unit_that_gradients_pass_through) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2, toy_model(4, /*frozen=*/1));
    IssueLog log(rank, toy);
    step(rank, toy, log);
  });
  // The frozen blocks1 has no reduce-scatter, but the gradients of blocks0 come through it.
  expect_issued(run, {{"backward of blocks2", "reduce_scatter blocks3; all_gather blocks1; "},
                      {"backward of blocks1", "reduce_scatter blocks2; all_gather blocks0; "},
                      {"backward of blocks0", ""}});
}

MULTI_RANK_TEST(T6_3_backward, one_backward_over_two_forwards_prefetches_the_units_of_both) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2);
    toy.model->order = {0, 1, 2};
    const auto first = plain_loss(*toy.model, rank.rank());
    toy.model->order = {0, 3};
    const auto second = plain_loss(*toy.model, rank.rank());
    IssueLog log(rank, toy);
    backward(rank, toy, log, first + second);
  });
  // blocks0 and the root stay gathered until the backward of both forwards has used them.
  expect_issued(run, {{"backward of blocks3", "all_gather blocks3; all_gather blocks0; "},
                      {"backward of blocks0", "reduce_scatter blocks3; all_gather blocks2; "},
                      {"backward of blocks2", "all_gather blocks1; "},
                      {"backward of blocks1", "reduce_scatter blocks2; "},
                      {"backward of blocks0 (2)", "reduce_scatter blocks1; "},
                      {"the end of backward", "reduce_scatter blocks0; reduce_scatter root; "}});
}

MULTI_RANK_TEST(T6_3_backward, a_backward_that_throws_does_not_change_the_next_backward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2);
    {
      auto bias = toy.model->blocks[3]->bias;
      const auto hook = bias.register_hook(
          [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no"); });
      rank.observe("what backward throws", thrown_by([&] { toy.step(rank); }));
      bias.remove_hook(hook);
    }
    IssueLog log(rank, toy);
    step(rank, toy, log);
  });
  expect_error(run, "what backward throws", {"std::runtime_error"});
  expect_issued(run, kBackwardAhead);
}

// Runs a forward of the blocks `order`, of which the last one throws.
void forward_that_throws(TestRank& rank, const PrefetchingToy& toy, const std::vector<int>& order) {
  ToyBlock& last = *toy.model->blocks[static_cast<size_t>(order.back())];
  last.fails = true;
  toy.model->order = order;
  rank.observe("what forward throws", thrown_by([&] { plain_loss(*toy.model, rank.rank()); }));
  last.fails = false;
}

MULTI_RANK_TEST(T6_3_backward, backward_prefetches_no_unit_of_a_forward_that_threw) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 3);
    forward_that_throws(rank, toy, {0, 1, 2});
    toy.model->order = {2, 3};
    IssueLog log(rank, toy);
    step(rank, toy, log);
  });
  expect_error(run, "what forward throws", {"std::runtime_error"});
  expect_issued(run, {{"backward of blocks3", "all_gather blocks3; all_gather blocks2; "},
                      {"backward of blocks2", "reduce_scatter blocks3; "}});
}

MULTI_RANK_TEST(T6_3_backward,
                backward_still_prefetches_the_units_of_the_forward_before_one_that_threw) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 2);
    toy.model->order = {0, 1};
    IssueLog log(rank, toy);
    const auto loss = plain_loss(*toy.model, rank.rank());
    forward_that_throws(rank, toy, {2, 3});
    backward(rank, toy, log, loss);
  });
  expect_error(run, "what forward throws", {"std::runtime_error"});
  expect_issued(run, {{"backward of blocks1", "all_gather blocks1; all_gather blocks0; "},
                      {"backward of blocks0", "reduce_scatter blocks1; "}});
}

// When this forward begins, the prefetcher still expects the calls that the failed backward did not
// reach. Then the forward throws too.
MULTI_RANK_TEST(T6_3_backward,
                backward_prefetches_no_unit_of_a_forward_that_threw_after_a_failed_backward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 3);
    break_off_at("blocks3.bias", toy, rank);
    forward_that_throws(rank, toy, {0, 1, 2});
    toy.model->order = {2, 3};
    IssueLog log(rank, toy);
    step(rank, toy, log);
  });
  expect_broken_off(run);
  expect_error(run, "what forward throws", {"std::runtime_error"});
  expect_issued(run, {{"backward of blocks3", "all_gather blocks3; all_gather blocks2; "},
                      {"backward of blocks2", "reduce_scatter blocks3; "}});
}

MULTI_RANK_TEST(T6_3_backward,
                units_of_a_forward_without_backward_are_not_prefetched_after_the_next_backward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    PrefetchingToy toy(rank, 3);
    toy.model->order = {0, 1};
    plain_loss(*toy.model, rank.rank());
    toy.model->order = {2, 3};
    plain_loss(*toy.model, rank.rank()).backward();
    rank.observe("units gathered after the backward of another forward", toy.gathered());
    toy.drop_gradients();
    IssueLog log(rank, toy);
    step(rank, toy, log);
  });
  expect_on_all_ranks(run, "units gathered after the backward of another forward", "");
  expect_issued(run, {{"backward of blocks3", "all_gather blocks3; all_gather blocks2; "},
                      {"backward of blocks2", "reduce_scatter blocks3; "}});
}

// Trains two steps with `limit`. The second step runs backward twice over the same graph.
RankRun trained(int world_size, int limit) {
  return run_ranks(world_size, [limit](TestRank& rank) {
    PrefetchingToy toy(rank, limit);
    toy.model->order = {0, 1, 0, 2, 3};
    toy.step(rank);
    rank.communicator()->take_log();
    int64_t bytes = 0;
    const auto take = [&] {
      std::string calls;
      for (const Call& call : rank.communicator()->take_log()) {
        bytes += call.bytes;
        calls += call.name() + "; ";
      }
      return calls;
    };
    const auto loss = plain_loss(*toy.model, rank.rank());
    take();
    loss.backward({}, /*retain_graph=*/true);
    rank.observe("gathers the next unit before it reduces", gathers_ahead(take()));
    rank.observe("bytes received in the second step", bytes);
    rank.observe("a second backward over the kept graph begins", true);
    loss.backward();
    for (const auto& unit : toy.units)
      rank.observe("gradients of " + unit->unit(), unit->sharded_gradient());
  });
}

MULTI_RANK_TEST(T6_3_backward, prefetching_does_not_change_gradients) {
  const RankRun expected = trained(world_size(), 1);
  for (const int limit : {2, 3, 100}) {
    SCOPED_TRACE("limit " + std::to_string(limit));
    const RankRun run = trained(world_size(), limit);
    expect_on_all_ranks(run, "gathers the next unit before it reduces", true);
    for (const std::string unit : {"root", "blocks0", "blocks1", "blocks2", "blocks3"}) {
      expect_on_each_rank(run, "gradients of " + unit,
                          [&](int r) { return expected.at(r, "gradients of " + unit); });
    }
  }
}

MULTI_RANK_TEST(T6_3_backward, prefetching_does_not_change_the_bytes_received) {
  const RankRun expected = trained(world_size(), 1);
  for (const int limit : {2, 3, 100}) {
    SCOPED_TRACE("limit " + std::to_string(limit));
    const RankRun run = trained(world_size(), limit);
    expect_on_all_ranks(run, "gathers the next unit before it reduces", true);
    expect_on_all_ranks(run, "bytes received in the second step",
                        expected.at(0, "bytes received in the second step"));
  }
}

MULTI_RANK_TEST(T6_3_backward, the_prefetcher_and_the_units_are_freed_with_the_model) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto comm = rank.communicator();
    std::weak_ptr<Prefetcher> prefetcher;
    std::vector<std::weak_ptr<FlatParameter>> units;
    {
      PrefetchingToy toy(rank, 2);
      prefetcher = toy.prefetcher;
      units.assign(toy.units.begin(), toy.units.end());
      toy.step(rank);
      rank.observe("gathers the next unit before it reduces", gathers_ahead(toy.step(rank).second));
    }
    // The communicator keeps the tensors alive that other ranks read in place. wait_for_readers()
    // waits until the other ranks have read them, and frees them.
    comm->wait_for_readers();
    rank.observe("a Prefetcher is left", !prefetcher.expired());
    rank.observe("units that are left", std::count_if(units.begin(), units.end(),
                                                      [](auto& unit) { return !unit.expired(); }));
    for (const MemoryClass cls : {MemoryClass::shards, MemoryClass::gathered})
      rank.observe(std::string("bytes of ") + to_string(cls) + " that are left",
                   live_bytes::now()[cls]);
  });
  expect_on_all_ranks(run, "gathers the next unit before it reduces", true);
  expect_on_all_ranks(run, "a Prefetcher is left", false);
  expect_on_all_ranks(run, "units that are left", 0);
  expect_on_all_ranks(run, "bytes of shards that are left", 0);
  expect_on_all_ranks(run, "bytes of gathered that are left", 0);
}

}  // namespace
}  // namespace fsdp
