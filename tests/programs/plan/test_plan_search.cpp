#include <plan/search_text.h>
#include <plan/settings.h>
#include <plan/stack.h>
#include <planning/search.h>

#include <gtest/gtest.h>

#include <common/in_a_process.h>
#include <algorithm>
#include <set>

namespace fsdp {
namespace {

std::vector<Candidate> found_for(const PlanSettings& settings) {
  return search(settings.configs.front(), settings.searched, settings.machine,
                {layout_of, traces_of, *settings.memory});
}

// This test plans every 23rd candidate of a search separately, and compares both plans.
TEST_IN_A_PROCESS(
    PlanSearch,
    a_plan_search_gives_a_candidate_the_bytes_and_time_that_planning_it_separately_gives) {
  int wrong = 0, tried = 0;
  for (int64_t seed = 0; seed < 12; ++seed) {
    const std::vector<std::string> worlds{"1", "2", "4", "8"};
    std::vector<std::string> options{
        "--model",
        seed % 2 == 0 ? "gpt2-tiny" : "small",
        "--world",
        worlds[static_cast<size_t>(seed / 2 % 4)],
        "--seq",
        std::to_string(3 + seed % 15),
        "--gpus-per-host",
        seed % 3 == 0 ? "2" : "4",
        "--intra",
        "5us,300GB/s",
        "--inter",
        "20us,25GB/s",
        "--flops",
        "1T",
        "--search",
        "--memory",
        std::to_string((20 + seed) * (seed % 2 == 0 ? 10 : 500)) + "kB",
        "--backend",
        "shm"};
    if (seed % 4 == 3) options.insert(options.end(), {"--batch", "48"});
    if (seed % 4 == 1) options.insert(options.end(), {"--rows", std::to_string(1 + seed % 3)});
    const auto settings = parse_plan_options(options);
    const auto found = found_for(settings);
    double best = 0;
    for (size_t i = static_cast<size_t>(seed); i < found.size(); i += 23) {
      const Candidate& candidate = found[i];
      const ShardLayout layout = layout_of(candidate.config);
      const Plan plan = make_plan(candidate.config, layout, traces_of(candidate.config, layout),
                                  settings.machine);
      wrong += plan.peak.bytes.total != candidate.plan.peak.bytes.total;
      wrong += candidate.plan.time.has_value() == candidate.offloads();
      if (!candidate.offloads()) wrong += plan.time->total() != candidate.plan.time->total();
    }
    for (const Candidate& candidate : found)
      if (candidate.plan.peak.bytes.total <= *settings.memory)
        best = std::max(best, candidate.tokens_per_second());
    wrong += best > 0 && 1.01 * found.front().tokens_per_second() < best;
    tried += static_cast<int>(found.size());
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(tried, 12 * 72);
}

TEST_IN_A_PROCESS(PlanSearch, a_search_tries_every_setting_that_no_option_decides) {
  const auto tried = [](std::vector<std::string> options) {
    options.insert(options.end(), {"--model", "gpt2-tiny", "--world", "2", "--search", "--memory",
                                   "1GB", "--backend", "shm"});
    std::set<std::string> words;
    for (const Candidate& candidate : found_for(parse_plan_options(options))) {
      const TrainConfig& config = candidate.config;
      words.insert(std::string("strategy ") + config.sharding_strategy());
      words.insert("limit " + std::to_string(config.sharding.limit));
      words.insert("every " + std::to_string(config.memory.activation_checkpoint_every));
      words.insert(config.precision.policy.rounds_parameters() ? "bf16" : "fp32");
      words.insert(config.optimizer.step_in_backward ? "in backward" : "at end");
      words.insert(candidate.offloads() ? "in files" : "in memory");
      words.insert("rows " + std::to_string(candidate.rows()));
    }
    return words;
  };
  const std::set<std::string> all{
      "strategy full", "strategy grad_op", "strategy no", "limit 1", "limit 2", "limit 4",
      "every 0",       "every 1",          "every 2",     "fp32",    "bf16",    "in backward",
      "at end",        "in memory",        "in files",    "rows 1",  "rows 2",  "rows 4",
      "rows 8",        "rows 16",          "rows 32",     "rows 64"};
  EXPECT_EQ(tried({}), all);
  EXPECT_EQ(tried({"--strategy", "full", "--limit", "1", "--checkpoint-activations", "all",
                   "--param-dtype", "bf16", "--step-in-backward", "on", "--offload", "none",
                   "--rows", "3"}),
            (std::set<std::string>{"strategy full", "limit 1", "every 1", "bf16", "in backward",
                                   "in memory", "rows 3"}));
}

// With --batch, each candidate has as many tokens in a step as the batch, however it divides the
// batch into microbatches.
TEST_IN_A_PROCESS(PlanSearch, a_search_with_a_batch_cuts_it_into_microbatches) {
  const auto found = found_for(parse_plan_options(
      {"--model", "gpt2-tiny", "--world", "2", "--batch", "24", "--search", "--memory", "1GB"}));
  std::set<int64_t> rows;
  for (const Candidate& candidate : found) {
    EXPECT_EQ(candidate.config.training.batch, 24);
    EXPECT_EQ(candidate.tokens(), 24 * 19);
    rows.insert(candidate.rows());
  }
  EXPECT_EQ(rows, (std::set<int64_t>{1, 2, 4}));
}

TEST_IN_A_PROCESS(PlanSearch,
                  a_search_does_not_double_the_rows_if_the_speed_rises_by_less_than_one_percent) {
  const auto most_rows = [](const std::string& link) {
    int64_t most = 0;
    for (const Candidate& candidate :
         found_for(parse_plan_options({"--model", "small", "--world", "2", "--search", "--memory",
                                       "1GB", "--flops", "1T", "--intra", link})))
      most = std::max(most, candidate.rows());
    return most;
  };
  EXPECT_EQ(most_rows("1ns,300GB/s"), 1);
  EXPECT_EQ(most_rows("1ms,1MB/s"), 64);
}

TEST_IN_A_PROCESS(PlanSearch, every_line_of_a_search_has_fewer_bytes_than_the_lines_above_it) {
  for (const char* flops : {"1T", ""}) {
    std::vector<std::string> options{"--model",    "small",         "--world", "4", "--search",
                                     "--memory",   "1GB",           "--rows",  "1", "--intra",
                                     "50us,1GB/s", "--param-dtype", "bf16"};
    if (*flops != '\0') options.insert(options.end(), {"--flops", flops});
    const auto settings = parse_plan_options(options);
    const auto found = found_for(settings);
    const auto lines = worth_a_choice(found, *settings.memory);
    ASSERT_GE(lines.size(), 3U);
    EXPECT_EQ(lines.front().options, found.front().options);
    for (size_t i = 1; i < lines.size(); ++i) {
      EXPECT_LT(lines[i].plan.peak.bytes.total, lines[i - 1].plan.peak.bytes.total);
      EXPECT_LE(lines[i].tokens_per_second(), 1.01 * lines[i - 1].tokens_per_second());
    }
    const auto least = std::ranges::min_element(
        found, {}, [](const Candidate& candidate) { return candidate.plan.peak.bytes.total; });
    EXPECT_EQ(lines.back().plan.peak.bytes.total, least->plan.peak.bytes.total);
  }
}

// If times are unknown, because no option states how fast the machine is, the first plan is the one
// with the fewest bytes among those that recompute nothing, keep the moments in memory and
// prefetch.
TEST_IN_A_PROCESS(
    PlanSearch,
    if_times_are_unknown_a_search_lists_first_the_smallest_plan_that_does_no_extra_work) {
  const auto found = found_for(parse_plan_options(
      {"--model", "gpt2-tiny", "--world", "4", "--search", "--memory", "1GB", "--backend", "shm"}));
  const Candidate& first = found.front();
  EXPECT_EQ(first.config.memory.activation_checkpoint_every, 0);
  EXPECT_FALSE(first.offloads());
  EXPECT_TRUE(first.prefetches());
  for (const Candidate& other : found) {
    const bool as_much = other.flops_per_token() == first.flops_per_token();
    if (as_much && !other.offloads() && other.prefetches()) {
      EXPECT_GE(other.plan.peak.bytes.total, first.plan.peak.bytes.total);
    }
  }
}

}  // namespace
}  // namespace fsdp
