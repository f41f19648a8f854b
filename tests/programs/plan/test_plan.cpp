#include <plan/settings.h>
#include <plan/stack.h>
#include <planning/plan.h>

#include <gtest/gtest.h>

#include <common/in_a_process.h>

namespace fsdp {
namespace {

Plan plan_of(const PlanSettings& settings) {
  return plan_of(settings.configs.front(), settings.machine);
}

TEST_IN_A_PROCESS(Plan, a_plan_counts_six_operations_for_each_parameter_and_token) {
  const auto settings = parse_plan_options({"--model", "llama-13b", "--rows", "1", "--seq", "64"});
  const int64_t numel = layout_of(settings.configs.front()).numel();
  // Number of elements of the embedding, which is a lookup and no matrix product.
  const int64_t embedding = int64_t{32000} * 5120;
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

// With full sharding, the ring of all 16 ranks enters each host of 4 ranks at one rank, so only
// this rank receives from another host. With a replica on each host, each rank receives its shard
// of the gradients from other hosts.
TEST_IN_A_PROCESS(Plan, the_traffic_of_a_host_adds_up_what_its_ranks_receive) {
  const auto plan = [](const std::vector<std::string>& options) {
    std::vector<std::string> all{"--model", "small", "--world", "16", "--gpus-per-host", "4"};
    all.insert(all.end(), options.begin(), options.end());
    return plan_of(parse_plan_options(all));
  };
  const Plan full = plan({});
  EXPECT_EQ(full.host.between, full.between);
  EXPECT_EQ(full.host.within, 3 * full.between);
  const Plan hybrid = plan({"--strategy", "hybrid", "--shard-size", "4"});
  // Number of bytes that a rank receives in the all-reduce of the loss, in a ring of all ranks.
  const int64_t loss = 2 * 15 * 8;
  EXPECT_EQ(hybrid.host.between, 4 * (hybrid.between - loss) + loss);
  EXPECT_EQ(hybrid.host.within, 4 * hybrid.within + 3 * loss);
}

// NCCL cuts a ring of all ranks into one ring for each network card of a host.
TEST_IN_A_PROCESS(Plan, a_ring_of_all_ranks_uses_all_links_of_a_host_to_other_hosts) {
  const auto waiting = [](int links, const std::vector<std::string>& options) {
    std::vector<std::string> all{"--model", "small",   "--world",     "16",      "--flops",
                                 "1P",      "--intra", "1ns,900GB/s", "--inter", "1ns,1GB/s"};
    all.insert(all.end(), options.begin(), options.end());
    auto settings = parse_plan_options(all);
    settings.machine.links_of_ring = links;
    return static_cast<double>(plan_of(settings).time->waiting);
  };
  EXPECT_NEAR(waiting(1, {}) / waiting(8, {}), 8, 0.1);
  const std::vector<std::string> hybrid{"--strategy", "hybrid", "--shard-size", "8"};
  EXPECT_NEAR(waiting(1, hybrid) / waiting(8, hybrid), 1, 0.01);
}

// In forward every unit is gathered, in backward every block again, and every unit is reduced.
TEST_IN_A_PROCESS(Plan, the_costs_of_the_phases_add_up_to_those_of_the_step) {
  const Plan plan = plan_of(
      parse_plan_options({"--model", "gpt2-124m", "--world", "16", "--rows", "2", "--wrap", "block",
                          "--flops", "10T", "--gpus-per-host", "1", "--inter", "20us,10GB/s"}));
  PhaseCost sum;
  for (const PhaseCost& cost : plan.phases) {
    sum.flops += cost.flops;
    sum.computing += cost.computing;
    sum.waiting += cost.waiting;
  }
  EXPECT_EQ(sum.flops, plan.flops);
  EXPECT_EQ(sum.computing, plan.time->computing);
  EXPECT_EQ(sum.waiting, plan.time->waiting);
  const auto& forward = plan.phases[static_cast<size_t>(Phase::forward)];
  const auto& backward = plan.phases[static_cast<size_t>(Phase::backward)];
  EXPECT_EQ(forward.calls, 13);
  EXPECT_EQ(backward.calls, 12 + 13);
  EXPECT_NEAR(static_cast<double>(backward.links),
              25 * 15 * 20e3 + static_cast<double>(backward.received) / 10, 25);
}

}  // namespace
}  // namespace fsdp
