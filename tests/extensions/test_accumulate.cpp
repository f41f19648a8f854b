#include <sharded_optimizer.h>

#include <task4_backward_hooks/sharded_model.h>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(GradientSync);

MULTI_RANK_TEST(GradientSync, that_was_forgotten_is_refused_by_the_optimizer) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto optimizer = make_sharded_optimizer(sharded.units, {{"", {}}}, rank.communicator());
    sharded.hooks->set_requires_gradient_sync(false);
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("what step() throws", thrown_by([&] { optimizer->step(); }));
  });
  expect_error(run, "what step() throws", {"std::logic_error", "root"});
}

}  // namespace
}  // namespace fsdp
