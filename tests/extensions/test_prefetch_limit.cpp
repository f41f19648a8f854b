#include "language_models.h"
#include "two_steps.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(PrefetchLimit);

// Each pair is a prefetch limit in forward and one in backward: 1, 2 (the default), 3 or all units.
MULTI_RANK_TEST(PrefetchLimit,
                training_with_different_prefetch_limits_matches_the_prediction_and_changes_no_bit) {
  const Workload workload = workload_of(language_models().at(1));
  TrainConfig config = extension_config("fsdp", world_size());
  const auto expected = hash_of_single(config, workload);
  for (const auto& [forward, backward] :
       std::vector<std::pair<int, int>>{{1, 3}, {3, 1}, {2, kAllUnits}, {kAllUnits, 1}}) {
    SCOPED_TRACE(std::to_string(forward) + " and " + std::to_string(backward));
    config.sharding.forward_limit = forward;
    config.sharding.backward_limit = backward;
    expect_as_predicted(config, workload, expected);
  }
}

}  // namespace
}  // namespace fsdp
