#include <gtest/gtest.h>
#include <memory/live_bytes.h>
#include <testing/multi_rank.h>
#include <train/counted_run.h>

#include <regex>

#include <reference/trained.h>

// The tests train gpt2-tiny with the options --flops and --link: a clock simulates the time that
// ranks compute and that bytes need over the link.
namespace fsdp {
namespace {

constexpr double kFlops = 1e9;

TrainConfig counted_config(const Arranged& how) {
  TrainConfig config = config_of(how, /*parts=*/2, /*steps=*/3);
  config.ranks.comm.link = Link{std::chrono::microseconds(20), 1e8};
  config.ranks.flops = kFlops;
  return config;
}

struct Counted {
  explicit Counted(const nlohmann::json& line)
      : nanoseconds(line["counted"]["nanoseconds"]),
        computing(line["counted"]["computing"]),
        besides(line["counted"]["besides"]),
        peaks(line["peak_bytes"]) {}

  // Values of each rank; the index is the rank. `nanoseconds`: the simulated time of the run;
  // `computing`: the part of it in which the rank computed; `besides`: the bytes of memory that is
  // no tensor; `peaks`: the peak of live bytes.
  std::vector<int64_t> nanoseconds, computing, besides, peaks;
};

Counted counted(const TrainConfig& config) {
  const TemporaryFolder folder;
  return Counted(train(config, folder));
}

TEST(CountedRun,
     two_equal_runs_with_the_option_flops_take_the_same_simulated_time_to_the_nanosecond) {
  const Counted first = counted(counted_config({"fsdp", 2}));
  const Counted second = counted(counted_config({"fsdp", 2}));
  EXPECT_GT(first.nanoseconds.at(0), 0);
  EXPECT_EQ(first.nanoseconds, second.nanoseconds);
  EXPECT_EQ(first.peaks, second.peaks);
}

TEST(CountedRun, the_simulated_time_and_peak_memory_of_a_run_do_not_depend_on_threads_or_seed) {
  TrainConfig config = counted_config({"fsdp", 2});
  // One step only, because this test is slow if the threads share a core.
  config.training.steps = 1;
  const Counted first = counted(config);
  config.ranks.threads = 2;
  config.training.seed = 7;
  const Counted second = counted(config);
  EXPECT_EQ(first.nanoseconds, second.nanoseconds);
  EXPECT_EQ(first.peaks, second.peaks);
}

TEST(CountedRun, in_simulated_time_two_ranks_together_compute_as_long_as_one_process) {
  const int64_t of_a_rank = counted(counted_config({"fsdp", 2})).computing.at(1);
  const Counted single = counted(counted_config({"single", 2}));
  EXPECT_EQ(single.computing, std::vector<int64_t>{2 * of_a_rank});
  // A process without other ranks never waits, so it computes for the whole time.
  EXPECT_EQ(single.nanoseconds, single.computing);
}

// Both runs evaluate before the first step, which shows the order of the units, so that the first
// step prefetches.
TEST(CountedRun, evaluations_and_checkpoints_add_no_time_to_a_run_with_the_option_flops) {
  const TemporaryFolder folder;
  TrainConfig config = counted_config({"fsdp", 2});
  config.data.kind = DataKind::pattern;
  const Counted without = counted(config);
  config.data.eval_every = config.training.steps;
  const Counted plain = counted(config);
  EXPECT_EQ(plain.computing, without.computing);
  config.data.eval_every = 1;
  config.checkpoint.dir = folder.path() + "/run";
  config.checkpoint.format = CheckpointFormat::full;
  const Counted evaluated = counted(config);
  EXPECT_EQ(evaluated.nanoseconds, plain.nanoseconds);
  EXPECT_EQ(evaluated.computing, plain.computing);
}

TEST(CountedRun, with_the_option_flops_tokens_per_second_come_from_the_simulated_time) {
  const TemporaryFolder folder;
  TrainConfig config = counted_config({"fsdp", 2});
  config.data.kind = DataKind::pattern;
  config.data.eval_every = 1;
  config.reports.log = folder.path() + "/log";
  train(config, folder);
  const auto tokens = static_cast<double>(config.training.batch * config.training.seq);
  const auto lines = lines_of(config.reports.log);
  ASSERT_EQ(lines.size(), 3U);
  for (const auto& line : lines) {
    const double seconds = line["seconds"]["step"];
    EXPECT_NEAR(line["tokens_per_s"].get<double>() * seconds, tokens, 1e-6 * tokens);
  }
}

TEST(CountedRun, a_run_with_the_option_flops_takes_the_predicted_simulated_time_per_step) {
  const TemporaryFolder folder;
  const auto times = train(counted_config({"fsdp", 2}), folder)["step_seconds"];
  // The prediction is the sum of the predicted times of units, which are rounded to nanoseconds.
  EXPECT_NEAR(times["measured"].get<double>(), times["predicted"].get<double>(), 1e-7);
  EXPECT_LT(times["predicted"], times["predicted_without_prefetch"]);
}

TEST(CountedRun, in_simulated_time_a_run_without_prefetch_takes_longer_but_computes_as_long) {
  const Counted with = counted(counted_config({"fsdp", 2}));
  TrainConfig config = counted_config({"fsdp", 2});
  config.sharding.prefetch = false;
  const Counted without = counted(config);
  EXPECT_LT(with.nanoseconds, without.nanoseconds);
  EXPECT_EQ(with.computing, without.computing);
}

// Returns an FSDP strategy whose loss function, on rank 1, keeps and writes 32 MB of memory that is
// no tensor.
std::unique_ptr<Strategy> strategy_with_hidden_memory(const TrainConfig& config, Workload workload,
                                                      std::shared_ptr<Communicator> comm) {
  workload.loss = [hides = comm->rank() == 1, loss = workload.loss](
                      Module& model, int microbatch, int microbatches, int64_t step) {
    static std::vector<char> hidden;
    if (hides) hidden.assign(size_t{32} << 20, 1);
    return loss(model, microbatch, microbatches, step);
  };
  return make_fsdp_strategy(config, std::move(workload), std::move(comm));
}

TEST(CountedRun,
     a_run_with_the_option_flops_reports_memory_outside_tensors_for_the_rank_that_allocated_it) {
  const TemporaryFolder folder;
  const FsdpImplementation hiding{strategy_with_hidden_memory, shard_layout, nullptr,
                                  construct_on_meta};
  const Counted hidden(trained(counted_config({"fsdp", 2}), folder, hiding).back());
  const Counted plain = counted(counted_config({"fsdp", 2}));
  EXPECT_GT(hidden.besides.at(1), int64_t{32} << 20);
  EXPECT_LT(hidden.besides.at(0), int64_t{8} << 20);
  EXPECT_LT(plain.besides.at(1), int64_t{8} << 20);
  EXPECT_EQ(hidden.peaks, plain.peaks);
}

TEST(CountedRun,
     a_run_with_the_option_flops_reports_tensor_bytes_missing_from_live_bytes_as_other_memory) {
  const auto clock = std::make_shared<FlopClock>(kFlops);
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    CountedRun counted(clock);
    const at::Tensor tensor = at::ones({8 << 20});
    live_bytes::add(MemoryClass::other, -(int64_t{32} << 20));
    counted.begin();
    rank.observe("hidden", counted.end(*rank.communicator())["besides"].at(0) > (24 << 20));
    live_bytes::add(MemoryClass::other, int64_t{32} << 20);
  });
  expect_on_all_ranks(run, "hidden", true);
}

TEST(CountedRun,
     a_run_with_the_option_flops_prints_the_memory_outside_tensors_of_the_rank_with_most_of_it) {
  testing::internal::CaptureStdout();
  const int status =
      run_training(counted_config({"fsdp", 2}),
                   {strategy_with_hidden_memory, shard_layout, nullptr, construct_on_meta});
  const std::string text = testing::internal::GetCapturedStdout();
  ASSERT_EQ(status, 0);
  const std::regex line(
      "\ncounted: ([0-9,]+) ns for 3 steps; each rank computed for ([0-9,]+) ns, "
      "with ([0-9,]+) bytes of tensors and ([0-9,]+) bytes of other memory\n");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(text, match, line)) << text;
  std::string besides = match[4];
  std::erase(besides, ',');
  EXPECT_GT(std::stoll(besides), int64_t{32} << 20);
}

TEST(CountedRun, simulated_time_includes_the_transfer_of_an_all_gather_not_yet_waited_for) {
  const auto clock = std::make_shared<FlopClock>(kFlops);
  RunOptions options;
  options.link = Link{std::chrono::microseconds(20), 1e8};
  options.clock = clock;
  const RankRun run = run_ranks(
      2,
      [&](TestRank& rank) {
        CountedRun counted(clock);
        counted.begin();
        Handle late =
            rank.communicator()->all_gather_into(at::empty({200'000}), at::ones({100'000}), "late");
        rank.observe("ns", counted.end(*rank.communicator())["nanoseconds"].at(0));
        late.wait();
      },
      options);
  // The all-gather moves 400,000 bytes over the link and makes one hop; the barrier at the end of
  // the run makes another hop.
  expect_on_all_ranks(run, "ns", 4'000'000 + 20'000 + 20'000);
}

}  // namespace
}  // namespace fsdp
