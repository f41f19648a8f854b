#include "sharded_model.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T4_2_across_passes);

// The first backward pass reaches no block. So the call of blocks1 whose output has no part in the
// loss is all that the pass could leave behind.
MULTI_RANK_TEST(T4_2_across_passes, a_pass_forgets_the_calls_that_did_not_come_back) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const Sharded sharded(rank);
    sharded.model->order = {};
    (*sharded.model->blocks[1])(at::ones({1, 7}).requires_grad_(true));
    plain_loss(*sharded.model, rank.rank()).backward();
    sharded.drop_gradients();
    sharded.model->order = {0, 1, 2};
    const auto loss = plain_loss(*sharded.model, rank.rank());
    take_calls(*rank.communicator());
    loss.backward();
    rank.observe("calls of the pass after a pass to which a call did not come back",
                 take_calls(*rank.communicator()));
  });
  expect_on_all_ranks(run, "calls of the pass after a pass to which a call did not come back",
                      kBackward);
}

MULTI_RANK_TEST(T4_2_across_passes, a_call_that_came_back_counts_in_no_later_pass) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const Sharded sharded(rank);
    plain_loss(*sharded.model, rank.rank()).backward();
    sharded.model->order = {0, 1, 1, 2};  // more calls than had a backward in the first pass
    const auto loss = plain_loss(*sharded.model, rank.rank());
    rank.observe("what the second pass throws", thrown_by([&] { loss.backward(); }));
  });
  expect_on_all_ranks(run, "what the second pass throws", kNothingThrown);
}

}  // namespace
}  // namespace fsdp
