#include <memory/live_bytes.h>
#include <meta_init.h>
#include <planning/trace_on_meta.h>
#include <prediction/prediction.h>
#include <properties/random_model.h>
#include <properties/verdict.h>
#include <report/parameter_summary.h>
#include <state/checkpoint.h>
#include <state/whole_state.h>
#include <testing/multi_rank.h>
#include <train/rank_metrics.h>
#include <trainer/strategy_of.h>

#include <bit>
#include <cmath>

#include <common/temporary_folder.h>

namespace fsdp {
namespace {

using Json = nlohmann::json;

std::unique_ptr<Strategy> make(const TrainConfig& config, const RandomTraining& c, TestRank& rank) {
  auto strategy = strategy_of(rank, config, workload_of(c));
  strategy->set_loss_scale(c.loss_scale);
  return strategy;
}

// Saves the state in `folder`, and replaces `strategy` by one with a new model, which loads it.
void save_and_go_on(std::unique_ptr<Strategy>& strategy, TrainConfig& config,
                    const RandomTraining& c, TestRank& rank, const std::string& folder) {
  Communicator& comm = *rank.communicator();
  save_checkpoint(folder, CheckpointFormat::sharded, c.saved, {}, strategy->state(), comm);
  strategy.reset();
  strategy = make(config, c, rank);
  config.checkpoint.first_step = c.saved;
  load_checkpoint(find_checkpoint(folder).folder, strategy->state(), strategy->locate(), comm);
}

void compare(std::string& differences, const std::string& what, int64_t measured,
             std::optional<int64_t> predicted) {
  if (predicted && *predicted != measured)
    differences += "; " + what + ": " + std::to_string(measured) + " bytes, predicted " +
                   std::to_string(*predicted);
}

// Compares this rank's traffic in the last step, and the peak of its live bytes in each phase since
// the second step (of a training of one step: since the start), with the bytes that are predicted
// for `step`. Observes the differences.
void observe_bytes(TestRank& rank, const std::vector<Call>& log, const Schedule& step) {
  std::map<std::string, int64_t> received;
  for (const Call& call : log)
    received[call.unit.is_label() ? call.unit.str() : to_string(call.operation)] += call.bytes;
  std::string differences;
  for (const auto& [key, bytes] : predict_comm_bytes(step)) {
    const std::string name = key == "norm" || key == "metrics" ? "<" + key + ">" : key;
    compare(differences, key, received[name], bytes);
  }
  const std::string backend = rank.communicator()->backend();
  const PredictedMemory predicted = predict_memory(step, backend);
  for (size_t phase = 0; phase < kPhases; ++phase) {
    const std::string in = std::string("live in ") + to_string(static_cast<Phase>(phase)) + ", ";
    const LiveBytes peak = live_bytes::peak(static_cast<Phase>(phase));
    for (size_t cls = 0; cls < kMemoryClasses; ++cls)
      compare(differences, in + to_string(static_cast<MemoryClass>(cls)), peak.by_class[cls],
              predicted.bytes[phase][cls]);
    compare(differences, in + "in all", peak.total, predicted.totals[phase]);
  }
  rank.observe("bytes", differences);
}

// Returns whether the last step of `c`, which is compared with its prediction, is the first step of
// its model. The first step does not prefetch, because the order of the units is not known yet.
bool knows_no_order(const RandomTraining& c) {
  return c.config.training.steps == 1 || (c.config.training.steps == 2 && c.saved == 1);
}

// Trains `c` on this rank, and observes losses, norms, hashes and bytes. If `c` has a checkpoint or
// offloaded moments, they are in `folder`.
void train(TestRank& rank, const RandomTraining& c, const std::string& folder) {
  TrainConfig config = c.config;
  if (c.offloads) config.memory.offload_dir = folder;
  if (!c.offloads) config.memory.offload_resident = 0;
  const Workload workload = workload_of(c);
  const auto traces =
      trace_on_meta(config, workload, shard_layout(config, workload), construct_on_meta);
  auto strategy = make(config, c, rank);
  Communicator& comm = *rank.communicator();
  const bool replicas = config.ranks.mode == Mode::fsdp && config.shards() < config.ranks.world;
  Communicator& of_strategy = replicas ? *rank.hybrid(config.shards()) : comm;
  for (int64_t step = 0; step < config.training.steps; ++step) {
    const std::string after = " of step " + std::to_string(step + 1);
    if (step == 1)
      for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer})
        live_bytes::reset(phase);
    if (config.optimizer.lr_factor)
      *config.optimizer.lr_factor = 1.0 / static_cast<double>(1 + step);
    comm.take_log();
    of_strategy.take_log();
    const int parts = config.ranks.mode == Mode::single
                          ? config.training.microbatches
                          : config.training.microbatches / config.ranks.world;
    const MeanOverRanks loss(comm, strategy->forward_backward(step), parts);
    rank.observe("loss" + after, loss.mean());
    if (config.optimizer.clip)
      rank.observe("norm" + after,
                   strategy->clip_grad_norm(*config.optimizer.clip, config.optimizer.norm_type));
    strategy->step();
    if (step + 1 == config.training.steps) {
      auto log = comm.take_log();
      for (const Call& call : of_strategy.take_log())
        // If the communicator `of_strategy` is `comm` itself, this log is empty, because
        // comm.take_log() above emptied it.
        log.push_back(call);
      observe_bytes(rank, log,
                    schedule(config, strategy->layout(), rank.rank(), knows_no_order(c), traces));
    }
    // The memory of the following checks must not count in a phase of the step.
    live_bytes::enter(Phase::init);
    ParameterSummary parameters;
    strategy->full_parameters([&](const auto&, const at::Tensor& p) { parameters.add(p); });
    if (rank.rank() == 0) rank.observe("parameters" + after, parameters.sha256());
    const std::string state = state_sha256(strategy->state(), comm);
    if (rank.rank() == 0) rank.observe("state" + after, state);
    if (step + 1 == c.saved) save_and_go_on(strategy, config, c, rank, folder);
  }
}

bool is_nan(const Json& value) {
  return value.is_number() && std::isnan(value.get<double>());
}

std::string difference(const RankRun& run, const RankRun& expected, int rank,
                       const std::string& name) {
  if (!run.observed(rank, name) || !expected.observed(0, name)) return "";
  const Json& is = run.at(rank, name);
  const Json& should_be = expected.at(0, name);
  if (is == should_be || (is_nan(is) && is_nan(should_be))) return "";
  return name + " on rank " + std::to_string(rank) + " is " + is.dump() +
         "; in one process it is " + should_be.dump();
}

// Returns the training `c` for one process, without the options that must not change a bit.
RandomTraining in_one_process(RandomTraining c) {
  TrainConfig& config = c.config;
  const auto [shards, replicas, accumulation_steps, reduce_last] = config.batch_partition();
  const auto doubles = [](int count) { return std::has_single_bit(static_cast<uint64_t>(count)); };
  if (c.with_one_rank && doubles(shards) && doubles(reduce_last ? accumulation_steps : replicas)) {
    config.ranks.world = 1;
    config.sharding.shard_size = 0;
    config.training.reduce_gradients = ReduceGradients::each;
  }
  config.ranks.mode = Mode::single;
  c.saved = 0;
  c.offloads = false;
  for (Layer& layer : c.layers)
    layer.checkpointed = false;
  return c;
}

int ranks_of(const RandomTraining& c) {
  return c.config.ranks.mode == Mode::single ? 1 : c.config.ranks.world;
}

}  // namespace

std::string first_difference(const RandomTraining& c) {
  const TemporaryFolder folder;
  const auto trained = [&](const RandomTraining& one) {
    return try_ranks(ranks_of(one), [&](TestRank& rank) { train(rank, one, folder.path()); },
                     {.backend = one.config.ranks.comm.backend, .record = false});
  };
  const RankRun expected = trained(in_one_process(c));
  if (!expected.failure().empty()) return "in one process: " + expected.failure();
  const RankRun run = trained(c);
  if (!run.failure().empty()) return run.failure();
  for (int64_t step = 1; step <= c.config.training.steps; ++step) {
    for (const std::string what : {"loss", "norm", "parameters", "state"}) {
      for (int rank = 0; rank < ranks_of(c); ++rank) {
        const std::string name = what + " of step " + std::to_string(step);
        const std::string fault = difference(run, expected, rank, name);
        if (!fault.empty()) return fault;
      }
    }
  }
  for (int rank = 0; rank < ranks_of(c) && has_one_path(c); ++rank) {
    const auto differences = run.at(rank, "bytes").get<std::string>();
    if (!differences.empty()) return "rank " + std::to_string(rank) + differences;
  }
  return "";
}

}  // namespace fsdp
