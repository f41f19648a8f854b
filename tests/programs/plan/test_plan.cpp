#include <plan/settings.h>
#include <plan/stack.h>
#include <planning/plan.h>

#include <gtest/gtest.h>

#include <common/in_a_process.h>

namespace fsdp {
namespace {

Plan plan_of(const PlanSettings& settings) {
  const TrainConfig& config = settings.configs.front();
  const ShardLayout layout = layout_of(config);
  return make_plan(config, layout, traces_of(config, layout), settings.machine);
}

TEST_IN_A_PROCESS(Plan, a_plan_counts_six_operations_for_each_parameter_and_token) {
  const auto settings = parse_plan_options({"--model", "llama-13b", "--rows", "1", "--seq", "64"});
  const int64_t numel = layout_of(settings.configs.front()).numel();
  const int64_t embedding = int64_t{32000} * 5120;  // a lookup, no product
  EXPECT_NEAR(static_cast<double>(plan_of(settings).flops) /
                  (6.0 * static_cast<double>(numel - embedding) * 64),
              1, 0.02);
}

// With full sharding, all 16 ranks gather and reduce together, and all their traffic (15/16 of the
// units) counts as traffic between hosts. With hybrid sharding, the 4 ranks of a host gather and
// reduce among themselves (3/4 of the units), and the only traffic between hosts is an all-reduce
// of a quarter of the gradients.
TEST_IN_A_PROCESS(Plan, a_plan_counts_traffic_within_hosts_and_between_hosts_separately) {
  const auto plan = [](const std::vector<std::string>& options) {
    std::vector<std::string> all{"--model", "small", "--world", "16", "--gpus-per-host", "4"};
    all.insert(all.end(), options.begin(), options.end());
    return plan_of(parse_plan_options(all));
  };
  const Plan full = plan({}), hybrid = plan({"--strategy", "hybrid", "--shard-size", "4"});
  EXPECT_EQ(full.within, 0);
  EXPECT_EQ(full.between % 15, 0);
  EXPECT_EQ(hybrid.within % 3, 0);
  EXPECT_LT(hybrid.between * 7, full.between);
}

}  // namespace
}  // namespace fsdp
