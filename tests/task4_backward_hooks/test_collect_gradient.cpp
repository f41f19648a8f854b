#include "sharded_model.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T4_2_collect);

// In the backward of a block, the gradient of the parameter `spare` is complete before the gradient
// of `weight` arrives.
MULTI_RANK_TEST(T4_2_collect, a_parameters_gradient_is_collected_when_it_is_complete) {
  const std::string collected = "units that have collected spare as the gradient of weight arrives";
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const Sharded sharded(rank);
    std::string early, seen;
    for (size_t i = 1; i < sharded.units.size(); ++i) {
      const FlatParameter& unit = *sharded.units[i];
      const ToyBlock& block = *sharded.model->blocks[i - 1];
      const auto note = [&unit](std::string& names) {
        if (unit.has_gradient()) names += unit.unit() + " ";
      };
      block.spare.register_hook([&early, note](const at::Tensor&) { note(early); });
      block.weight.register_hook([&seen, note](const at::Tensor&) { note(seen); });
    }
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("units that have collected something before the gradient of spare", early);
    rank.observe(collected, seen);
  });
  expect_on_all_ranks(run, "units that have collected something before the gradient of spare", "");
  expect_on_all_ranks(run, collected, "blocks2 blocks1 blocks0 ");
}

}  // namespace
}  // namespace fsdp
