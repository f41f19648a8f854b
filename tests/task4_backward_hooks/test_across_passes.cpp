#include "sharded_model.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T4_2_across_passes);

// Returns `calls` without the reduction of the root, which is issued at the end of the backward
// pass (problem 4.4).
std::string of_blocks(std::string calls) {
  const std::string root = "reduce_scatter root; ";
  const size_t at = calls.find(root);
  return at == std::string::npos ? calls : calls.erase(at, root.size());
}

// The loss of the first backward pass reaches no block. Before it, blocks1 is called, but its
// output has no part in the loss. This call is all that the first pass could leave behind for the
// second one.
MULTI_RANK_TEST(T4_2_across_passes, calls_that_backward_did_not_reach_are_forgotten_at_its_end) {
  const std::string kCalls =
      "calls for the blocks in the pass after a pass to which a call did not come back";
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const Sharded sharded(rank);
    sharded.model->order = {};
    (*sharded.model->blocks[1])(at::ones({1, 7}).requires_grad_(true));
    plain_loss(*sharded.model, rank.rank()).backward();
    sharded.drop_gradients();
    sharded.model->order = {0, 1, 2};
    const auto loss = plain_loss(*sharded.model, rank.rank());
    take_calls(*rank.communicator());
    loss.backward();
    rank.observe(kCalls, of_blocks(take_calls(*rank.communicator())));
  });
  expect_on_all_ranks(run, kCalls, of_blocks(kBackward));
}

MULTI_RANK_TEST(T4_2_across_passes, a_call_whose_backward_has_run_does_not_count_in_later_passes) {
  const std::string kFirst = "what a first pass throws in which blocks1 was called twice";
  const std::string kSecond = "what such a pass throws after a pass in which it was called once";
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    for (const bool is_first : {true, false}) {
      const Sharded sharded(rank);
      if (!is_first) plain_loss(*sharded.model, rank.rank()).backward();
      sharded.model->order = {0, 1, 1, 2};
      const auto loss = plain_loss(*sharded.model, rank.rank());
      rank.observe(is_first ? kFirst : kSecond, thrown_by([&] { loss.backward(); }));
    }
  });
  expect_on_all_ranks(run, kFirst, kNothingThrown);
  expect_on_all_ranks(run, kSecond, kNothingThrown);
}

}  // namespace
}  // namespace fsdp
