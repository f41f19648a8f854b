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

TEST_IN_A_PROCESS(Plan, counts_six_operations_for_each_parameter_and_token) {
  const auto settings = parse_plan_options({"--model", "llama-13b", "--rows", "1", "--seq", "64"});
  const int64_t numel = layout_of(settings.configs.front()).numel();
  const int64_t embedding = int64_t{32000} * 5120;  // a row lookup
  EXPECT_NEAR(static_cast<double>(plan_of(settings).flops) /
                  (6.0 * static_cast<double>(numel - embedding) * 64),
              1, 0.02);
}

// 4 N bytes of parameters in padded units, of which R of the root are gathered once: by sixteen
// ranks, or by four, and then an all-reduce of a quarter over four hosts.
TEST_IN_A_PROCESS(Plan, tells_what_stays_within_a_host_from_what_leaves_it) {
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

TEST_IN_A_PROCESS(PlanSearch, finds_what_planning_each_candidate_by_itself_finds) {
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

TEST(PlanOptions, say_what_is_wrong) {
  const auto error = [](const std::vector<std::string>& options) {
    return error_of<UsageError>([&] { parse_plan_options(options); });
  };
  EXPECT_EQ(error({"--search"}), "--search: needs --memory");
  EXPECT_EQ(error({"--search", "--memory", "much"}), "--memory much: takes a number such as 80GB");
  EXPECT_EQ(error({"--world", "0..8"}), "--world must be at least 1, not 0");
  EXPECT_EQ(error({"--rows", "2", "--batch", "4"}), "--rows: takes the place of --batch");
}

// The run.toml of a run says what is planned, but for the ranks.
TEST(PlanOptions, of_a_file_count_more_than_what_a_plan_takes_by_itself) {
  const TemporaryFolder folder;
  folder.write("run/step-000009/checkpoint.json", "{}");
  const std::string tokens = folder.write("t.bin", std::string(400, 'a'));
  const std::string file = folder.write(
      "run.toml",
      "mode = \"ddp\"\nworld = 4\nmodel = \"gpt2-tiny\"\ndata = \"tokens\"\ntokens = \"" + tokens +
          "\"\nvocabulary = 25000\nseq = 8\nbatch = 8\nparts = 8\nsteps = 9\n" +
          "checkpoint-dir = \"" + folder.path() + "/run\"\nsave-every = 3\nresume = \"auto\"\n" +
          "log = \"/no/log\"\njson = \"/no/json\"\nwarmup = 20\n");
  const auto plans = [&](std::vector<std::string> options) {
    options.insert(options.end(), {"--config", file});
    return parse_plan_options(options).configs;
  };
  testing::internal::CaptureStderr();
  const TrainConfig own = plans({}).front();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(own.ranks.mode, Mode::ddp);
  EXPECT_EQ(own.ranks.world, 4);
  EXPECT_EQ(own.model.name, "gpt2-tiny");
  EXPECT_EQ(own.data.kind, DataKind::tokens);
  EXPECT_EQ(own.training.batch, 8);
  EXPECT_EQ(own.training.parts, 8);
  EXPECT_EQ(own.training.steps, 9);
  EXPECT_EQ(own.checkpoint.first_step, 0);
  EXPECT_EQ(own.checkpoint.dir + own.reports.log + own.reports.json + own.checkpoint.resume, "");
  const auto more = plans({"--world", "4..16", "--rows", "2", "--mode", "fsdp"});
  ASSERT_EQ(more.size(), 3U);
  EXPECT_EQ(more[0].training.parts, 8);
  EXPECT_EQ(more[2].training.parts, 16);
  EXPECT_EQ(more[2].training.batch, 32);
  EXPECT_EQ(more[2].ranks.mode, Mode::fsdp);
  EXPECT_EQ(parse_plan_options({"--model", "small"}).configs.front().data.kind, DataKind::pattern);
  const std::vector<std::string> of_tokens{"--tokens", tokens,      "--vocabulary", "25000",
                                           "--model",  "gpt2-tiny", "--seq",        "8"};
  EXPECT_EQ(parse_plan_options(of_tokens).configs.front().data.kind, DataKind::tokens);
}

TEST(PlanOptions, that_are_unknown_may_be_meant_as_those_of_plan_or_of_train) {
  const auto error = [](const std::vector<std::string>& options) {
    return error_of<UsageError>([&] { parse_plan_options(options); });
  };
  EXPECT_EQ(error({"--flop", "1T"}), "there is no option --flop; the nearest one is --flops");
  EXPECT_EQ(error({"--modle", "small"}), "there is no option --modle; the nearest one is --model");
  EXPECT_EQ(error({"--memory", "8GB"}), "--memory: needs --search");
  EXPECT_EQ(error({"--svg", "/no/such.svg"}), "--svg /no/such.svg: No such file or directory");
}

}  // namespace
}  // namespace fsdp
