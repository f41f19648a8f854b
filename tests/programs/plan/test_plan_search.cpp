#include <plan/settings.h>
#include <plan/stack.h>
#include <planning/plan.h>

#include <gtest/gtest.h>

#include <common/in_a_process.h>

namespace fsdp {
namespace {

TEST_IN_A_PROCESS(PlanSearch, a_plan_search_finds_what_planning_each_candidate_separately_finds) {
  int wrong = 0, tried = 0;
  for (int64_t seed = 0; seed < 24; ++seed) {
    const std::vector<std::string> worlds{"1", "2", "4", "8"};
    auto settings = parse_plan_options(
        {"--model", seed % 2 == 0 ? "gpt2-tiny" : "small", "--world",
         worlds[static_cast<size_t>(seed / 2 % 4)], "--rows", std::to_string(1 + seed % 3), "--seq",
         std::to_string(3 + seed % 15), "--gpus-per-host", seed % 3 == 0 ? "2" : "4", "--intra",
         "5us,300GB/s", "--inter", "20us,25GB/s", "--flops", "1T"});
    const TrainConfig& base = settings.configs.front();
    const int64_t memory = (20 + seed) * (seed % 2 == 0 ? 10'000 : 500'000);
    const auto found = search(base, settings.machine, memory, layout_of, traces_of);
    int64_t best = -1;
    for (const Candidate& candidate : found) {
      const ShardLayout layout = layout_of(candidate.config);
      const Plan plan = make_plan(candidate.config, layout, traces_of(candidate.config, layout),
                                  settings.machine);
      wrong += plan.peak.bytes.total != candidate.plan.peak.bytes.total;
      wrong += plan.time->total() != candidate.plan.time->total();
      if (plan.peak.bytes.total <= memory && (best < 0 || plan.time->total() < best))
        best = plan.time->total();
    }
    const Plan& first = found.front().plan;
    wrong += best < 0 ? first.peak.bytes.total <= memory : first.time->total() != best;
    tried += static_cast<int>(found.size());
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(tried, 24 * 18);
}

}  // namespace
}  // namespace fsdp
