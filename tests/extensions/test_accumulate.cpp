#include <sharded_optimizer.h>

#include <task4_backward_hooks/sharded_model.h>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(GradientSync);

MULTI_RANK_TEST(GradientSync, that_was_forgotten_is_refused_by_the_optimizer) {
  run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto optimizer = make_sharded_optimizer(sharded.units, {{"", {}}}, rank.communicator());
    sharded.hooks->set_requires_gradient_sync(false);
    plain_loss(*sharded.model, rank.rank()).backward();
    try {
      optimizer->step();
      FAIL() << "nothing was thrown";
    } catch (const std::logic_error& error) {
      expect_error_says(error.what(), "root");
    }
  });
}

}  // namespace
}  // namespace fsdp
