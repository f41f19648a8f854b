#include <strategies/fsdp/fsdp_strategy.h>
#include <task7_integration/predicted_peaks.h>
#include <task7_integration/tiny_training.h>
#include <testing/multi_rank.h>

namespace fsdp {
namespace {

// The table of live bytes is of the reference solution, and exact: the tests of task 7 allow what
// its contracts leave open.
MULTI_RANK_SUITE(LiveBytesOfTheReference);

const std::shared_ptr<Communicator>& communicator_of(const TrainConfig& config, TestRank& rank) {
  return config.shards() < config.world ? rank.hybrid(config.shards()) : rank.communicator();
}

std::unique_ptr<Strategy> make(const TrainConfig& config, TestRank& rank) {
  const Workload tiny = tiny_workload(config);
  if (config.mode == "fsdp") return make_fsdp_strategy(config, tiny, communicator_of(config, rank));
  const ShardLayout layout = shard_layout(config, tiny);
  if (config.mode == "ddp") return make_ddp_strategy(config, tiny, layout, rank.communicator());
  return make_single_strategy(config, tiny, layout);
}

// Compares the peaks of the second step, and the bytes that it received.
void expect_as_predicted(const TrainConfig& config, const std::string& backend = "shm") {
  const int processes = config.mode == "single" ? 1 : config.world;
  const auto body = [&](TestRank& rank) {
    const auto strategy = make(config, rank);
    const auto& comm = communicator_of(config, rank);
    for (int step = 0; step < 2; ++step) {
      comm->take_log();
      for (size_t phase = 0; phase < kPhases; ++phase)
        live_bytes::reset(static_cast<Phase>(phase));
      strategy->forward_backward(step);
      strategy->step();
    }
    const Schedule predicted = schedule(config, strategy->layout(), rank.rank());
    observe_peaks(rank, predict_live_bytes(predicted, backend));
    std::map<std::string, int64_t> bytes;
    for (const Call& call : comm->take_log())
      bytes[to_string(call.operation)] += call.bytes;
    auto expected = predict_comm_bytes(predicted);
    expected.erase("metrics");  // the trainer averages the loss
    rank.observe("bytes received", bytes);
    rank.observe("bytes predicted", expected);
  };
  const RankRun run = run_ranks(processes, body, {.backend = backend});
  expect_predicted_peaks(run);
  for (int r = 0; r < processes; ++r)
    expect_on_rank(run, r, "bytes received", run.at(r, "bytes predicted"));
}

MULTI_RANK_TEST(LiveBytesOfTheReference, are_as_predicted_to_the_byte) {
  TrainConfig config = tiny_config(world_size());
  config.steps = 2;
  expect_as_predicted(config);
}

MULTI_RANK_TEST(LiveBytesOfTheReference, are_as_predicted_where_a_rank_computes_several_parts) {
  for (const char* mode : {"single", "ddp", "fsdp"}) {
    for (const int turns : {2, 3, 4}) {
      TrainConfig config = tiny_config(world_size());
      config.mode = mode;
      config.parts = turns * world_size();
      config.steps = 2;
      SCOPED_TRACE(std::string(mode) + ", " + std::to_string(turns) + " parts each");
      expect_as_predicted(config);
    }
  }
}

MULTI_RANK_SUITE_ON(LiveBytesOfReplicas, 2, 3, 4, 6);

MULTI_RANK_TEST(LiveBytesOfReplicas, are_as_predicted_to_the_byte_with_every_strategy) {
  for (const std::string backend : {"shm", "gloo"}) {
    for (int shards = 1; shards <= world_size(); ++shards) {
      if (world_size() % shards != 0) continue;
      for (const bool reshard : {true, false}) {
        TrainConfig config = tiny_config(world_size());
        config.steps = 2;
        config.shard_size = shards;
        config.reshard_after_forward = reshard;
        SCOPED_TRACE(backend + ", replicas of " + std::to_string(shards) +
                     (reshard ? "" : ", units kept"));
        expect_as_predicted(config, backend);
      }
    }
  }
}

}  // namespace
}  // namespace fsdp
