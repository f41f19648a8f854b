#include <ATen/Context.h>
#include <data/dataset.h>
#include <memory/live_bytes.h>
#include <meta_init.h>
#include <planning/trace_on_meta.h>
#include <prediction/prediction.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <strategies/language_modeling.h>
#include <train/rank_metrics.h>

#include <trainer/mode_of.h>
#include <trainer/strategy_of.h>

#include <gtest/gtest.h>

#include <limits>

namespace fsdp {
namespace {

// The embedding of the second model is so large that the peak in backward is the embedding's
// gradient together with its bucket.
const std::vector<std::string> kFamilies{
    "gpt2-tiny", "llama:vocabulary=2000,context=19,d_model=72,layers=2,heads=6,d_ff=50,kv_heads=2"};

struct Setting {
  std::string model;
  int64_t rows;  // number of rows that each rank computes
  int every;     // each `every`-th block recomputes its activations; 0: no block does
  at::ScalarType dtype;

  std::string text() const {
    return model + ", " + std::to_string(rows) + " rows, every " + std::to_string(every) + ", " +
           c10::toString(dtype);
  }
};

// Returns the settings that the test uses on `world` ranks. The tests on 1, 2, 3 and 4 ranks
// together combine each model, `every` and dtype with all numbers of rows. This is enough, because
// the activations of a rank depend only on its own rows.
std::vector<Setting> settings(int world) {
  constexpr int64_t rows[] = {1, 2, 5, 16};
  std::vector<Setting> all;
  for (const auto& model : kFamilies)
    for (const int every : {0, 2, 1})
      for (const auto dtype : {at::kFloat, at::kBFloat16})
        all.push_back({model, rows[(static_cast<size_t>(world) + all.size()) % 4], every, dtype});
  return all;
}

TrainConfig config_of(const Setting& setting, const std::string& mode, int world) {
  TrainConfig config;
  config.ranks.mode = mode_of(mode);
  config.ranks.world = world;
  config.model.name = setting.model;
  config.data.kind = DataKind::pattern;
  config.training.steps = 2;
  config.training.batch = setting.rows * world;
  config.training.seq = 18;
  config.memory.activation_checkpoint_every = setting.every;
  config.precision.policy = {setting.dtype, setting.dtype};
  return config;
}

// Trains two steps on this rank. Returns a text that lists the peaks of the second step that differ
// from the prediction; empty if none does.
std::string differences(TestRank& rank, const TrainConfig& config) {
  const std::shared_ptr<const Dataset> dataset = make_pattern_dataset(61, config.training.seed);
  Workload workload = language_modeling(config, dataset);
  if (config.memory.activation_checkpoint_every > 0) {
    workload.build = [build = workload.build, every = config.memory.activation_checkpoint_every] {
      auto model = build();
      checkpoint_blocks(*model, every);
      return model;
    };
  }
  const auto traces =
      trace_on_meta(config, workload, shard_layout(config, workload), construct_on_meta);
  const auto strategy = strategy_of(rank, config, workload);
  for (int64_t step = 0; step < 2; ++step) {
    for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer})
      live_bytes::reset(phase);
    const MeanOverRanks loss(*rank.communicator(), strategy->forward_backward(step), 1);
    if (config.optimizer.clip)
      strategy->clip_grad_norm(*config.optimizer.clip, config.optimizer.norm_type);
    strategy->step();
    live_bytes::enter(Phase::init);
  }
  const Schedule step = schedule(config, strategy->layout(), rank.rank(), /*first=*/false, traces);
  const std::string backend = rank.communicator()->backend();
  const PredictedMemory predicted = predict_memory(step, backend);
  std::string text;
  const auto compare = [&](const std::string& what, int64_t measured, int64_t expected) {
    if (measured != expected)
      text +=
          what + ": " + std::to_string(measured) + ", predicted " + std::to_string(expected) + "; ";
  };
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
    const LiveBytes peak = live_bytes::peak(phase);
    const auto i = static_cast<size_t>(phase);
    const auto other = static_cast<size_t>(MemoryClass::other);
    compare(std::string("activations in ") + to_string(phase), peak.by_class[other],
            predicted.bytes[i][other].value());
    compare(std::string("all in ") + to_string(phase), peak.total, predicted.totals[i].value());
  }
  return text;
}

MULTI_RANK_SUITE(ActivationPlan);

MULTI_RANK_TEST(ActivationPlan, planned_bytes_of_activations_equal_those_of_a_step_to_the_byte) {
  for (const char* mode : {"fsdp", "ddp", "single"}) {
    const int ranks = std::string(mode) == "single" ? 1 : world_size();
    const RankRun run = run_ranks(ranks,
                                  [&](TestRank& rank) {
                                    // The plan does not include the scratch memory of mkldnn in 16
                                    // bits.
                                    at::globalContext().setUserEnabledMkldnn(false);
                                    std::string wrong;
                                    for (const Setting& setting : settings(world_size())) {
                                      const std::string found =
                                          differences(rank, config_of(setting, mode, world_size()));
                                      if (!found.empty()) wrong += setting.text() + ": " + found;
                                    }
                                    rank.observe("wrong", wrong);
                                  },
                                  {.backend = std::string(mode) == "ddp" ? "gloo" : "shm"});
    expect_on_all_ranks(run, "wrong", "");
  }
}

// SGD without weight decay needs no memory for its update, so the peak is that of clipping.
MULTI_RANK_TEST(ActivationPlan,
                the_planned_peak_of_clipping_is_right_whether_gradients_are_scaled_or_not) {
  for (const char* mode : {"fsdp", "ddp"}) {
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      std::string wrong;
      for (const double norm_type : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
        for (const double max_norm : {1e-3, 1e9}) {
          TrainConfig config = config_of({kFamilies[0], 1, 0, at::kFloat}, mode, world_size());
          config.optimizer.kind = OptimizerOptions::Kind::sgd;
          config.optimizer.weight_decay = 0;
          config.optimizer.clip = max_norm;
          config.optimizer.norm_type = norm_type;
          const std::string found = differences(rank, config);
          if (!found.empty())
            wrong += "norm type " + std::to_string(norm_type) + ", at most " +
                     std::to_string(max_norm) + ": " + found;
        }
      }
      rank.observe("wrong", wrong);
    });
    expect_on_all_ranks(run, "wrong", "");
  }
}

}  // namespace
}  // namespace fsdp
