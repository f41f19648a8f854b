#include "sharded_model.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T4_4_remaining);

// Expects one reduction of each unit, also of the root, in the order `expected` or `or_this`. A
// unit that has a call without a backward is reduced at the end of the pass.
void expect_reduced_by_the_end(int world_size, const Loss& loss, const std::string& expected,
                               const std::string& or_this = "") {
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    Sharded sharded(rank);
    loss(*sharded.model, rank.rank()).backward();
    rank.observe("units reduced, in order", reductions(take_calls(*rank.communicator())));
    sharded.observe_gradients(rank);
    rank.observe("units still gathered", sharded.gathered());
  });
  const std::string order = "units reduced, in order";
  expect_on_all_ranks(run, order, run.at(0, order) == or_this ? or_this : expected);
  expect_on_all_ranks(run, "units still gathered", "");
  expect_gradients_of_one_process(run, loss);
}

MULTI_RANK_TEST(T4_4_remaining, an_unused_unit_is_reduced_once) {
  expect_reduced_by_the_end(world_size(), kBlockUnused, "blocks2; blocks0; blocks1; root; ");
}

MULTI_RANK_TEST(T4_4_remaining, a_unit_with_an_output_outside_the_loss_is_reduced_once) {
  // The contract leaves open whether the hooks wait until the end of the pass for a call whose
  // output can no longer get a gradient.
  expect_reduced_by_the_end(world_size(), kOutputDropped, "blocks2; blocks0; blocks1; root; ",
                            "blocks2; blocks1; blocks0; root; ");
}

// The first call of blocks1 gets a constant, which needs no gradient, so no full backward hook runs
// for this call. Its gradients come last in backward, after the full backward hook of the block's
// other call, because the call comes first in forward.
const Loss kOneInputNeedsNoGradient = [](ToyModel& model, int rank) {
  const auto on_constant = (*model.blocks[1])(at::ones({1, 7}));
  return plain_loss(model, rank) + on_constant.sum();
};

MULTI_RANK_TEST(T4_4_remaining, a_unit_with_an_input_without_gradient_is_reduced_once) {
  expect_reduced_by_the_end(world_size(), kOneInputNeedsNoGradient,
                            "blocks2; blocks0; blocks1; root; ");
}

MULTI_RANK_TEST(T4_4_remaining, a_second_backward_after_a_new_forward_issues_the_same_collectives) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    int ends = 0;
    sharded.hooks->on_end([&] { ++ends; });
    plain_loss(*sharded.model, rank.rank()).backward();
    const auto loss = plain_loss(*sharded.model, rank.rank());
    take_calls(*rank.communicator());
    rank.observe("the second pass begins, over a new forward that called each block once", true);
    loss.backward();
    rank.observe("calls of the second pass", take_calls(*rank.communicator()));
    rank.observe("calls of on_end() in two passes", ends);
  });
  expect_on_all_ranks(run, "calls of on_end() in two passes", 2);
  expect_on_all_ranks(run, "calls of the second pass", kBackward);
}

// If backward runs several times over one graph, each pass runs the backward of the same calls.
MULTI_RANK_TEST(T4_4_remaining, a_second_pass_over_a_retained_graph_reduces_each_unit_once) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto seen = look_at_arrivals(sharded, [&] { return sharded.gathered(); });
    const auto loss = kBlockUsedTwice(*sharded.model, rank.rank());
    loss.backward({}, /*retain_graph=*/true);
    seen->clear();
    for (const std::string pass : {"second", "third"}) {
      rank.communicator()->take_log();
      rank.observe("the " + pass + " pass begins; both calls of blocks0 come back again", true);
      loss.backward({}, /*retain_graph=*/pass == "second");
      rank.observe("units reduced in the " + pass + " pass",
                   reductions(take_calls(*rank.communicator())));
      rank.observe("units gathered as each block's gradient arrives in the " + pass + " pass",
                   std::exchange(*seen, ""));
    }
    sharded.observe_gradients(rank);
  });
  for (const std::string pass : {"second", "third"}) {
    expect_on_all_ranks(run, "units reduced in the " + pass + " pass",
                        "blocks2; blocks1; blocks0; root; ");
    // blocks0 is used twice, and stays gathered from one use to the other in backward.
    expect_on_all_ranks(run,
                        "units gathered as each block's gradient arrives in the " + pass + " pass",
                        "root blocks2 | root blocks0 | root blocks0 blocks1 | root blocks0 | ");
  }
  // The sum of the first two passes is exactly twice the gradient. Adding the gradient of the third
  // pass rounds as `mean * 2 + mean` does.
  const auto expected = run_oracle([&](TestRank& rank) {
    const auto model = toy_model(3);
    auto means =
        mean_gradients(*model, run.world_size(), [&](int r) { return kBlockUsedTwice(*model, r); });
    for (auto& unit : means) {
      for (auto& mean : unit)
        mean = mean * 2 + mean;
    }
    observe_means(rank, *model, means, run.world_size());
  });
  expect_gradients(run, expected);
}

// One backward pass runs over a graph that was retained and over the graph of the next forward.
MULTI_RANK_TEST(T4_4_remaining, a_retained_graph_and_a_new_one_in_one_loss_reduce_a_unit_once) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto first = plain_loss(*sharded.model, rank.rank());
    first.backward({}, /*retain_graph=*/true);
    sharded.drop_gradients();
    const auto second = plain_loss(*sharded.model, rank.rank());
    rank.communicator()->take_log();
    rank.observe("the second pass begins, over both graphs", true);
    (first + second).backward();
    rank.observe("units reduced in the second pass", reductions(take_calls(*rank.communicator())));
    sharded.observe_gradients(rank);
  });
  expect_on_all_ranks(run, "units reduced in the second pass", "blocks2; blocks1; blocks0; root; ");
  expect_gradients_of_one_process(
      run, [](ToyModel& model, int rank) { return plain_loss(model, rank) * 2; });
}

}  // namespace
}  // namespace fsdp
