#pragma once

#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <config/batch_partition.h>
#include <config/words.h>
#include <optim/loss_scaler.h>
#include <optim/mixed_precision.h>
#include <optim/update_rule.h>
#include <state/checkpoint_format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// The settings of a training run, by subject. The subjects have the names of the groups of options
// in `./fsdp train --help`, which explains each option, and of the tables in a file of --config.
namespace fsdp {

struct RanksConfig {
  Mode mode{Mode::single};
  int world{1};
  int threads{1};
  CommunicatorOptions comm{.keep_log = true};  // also the device of parameters and batches
  double flops{};  // [FLOP/s] of a rank whose time is counted (FlopClock); 0: time is measured
  OnLostHost on_lost_host{OnLostHost::end};
};

struct ModelConfig {
  std::string name{"small"};
  int64_t vocabulary{};  // number of ids; 0: the model's own number, or more if the data needs more
  std::string init;      // folder of a Hugging Face model to start from; empty: random, by the seed
  std::string freeze;    // pattern: names of parameters that are not trained; empty: none
  // With lora, adapters are trained, and all other parameters are frozen.
  int64_t lora{};           // rank of the adapters; 0: there are none
  double lora_alpha{};      // alpha / rank is the factor of what an adapter adds
  std::string lora_target;  // pattern: names of the layers with adapters
};

struct DataConfig {
  DataKind kind{DataKind::text};
  std::vector<std::string> tokens;  // a file of ids, and optionally a second one that is held out
  int64_t modulus{};                // of modular addition
  std::vector<std::string> text;
  std::shared_ptr<const std::string> text_content;  // of the files in `text`; null: not read yet
  int64_t eval_every{};  // steps between evaluations of the data that is held out; 0: none
};

struct TrainingConfig {
  int64_t steps{};
  int64_t stop_after{};  // ends the run after this step of `steps`, counted from 1; 0: after all
  // Index of the microbatch that the run computes in its first step, to end then without an update;
  // empty: the run trains.
  std::optional<int> only_microbatch;
  int64_t batch{};     // rows of the global batch of a step
  int microbatches{};  // of the global batch, a multiple of the ranks; 0: one for each rank
  ReduceGradients reduce_gradients{ReduceGradients::each};
  int64_t seq{};
  uint64_t seed{42};
  bool allow_nan{};  // continue if a loss or the norm of the gradients is not finite
};

// The options of the update rule, and the settings that change the learning rate or the gradients
// before an update. lr_factor is not null if there is a warmup or a decay.
struct OptimizerConfig : OptimizerOptions {
  int64_t warmup{};  // [steps]
  LrDecay lr_decay{LrDecay::none};
  double min_lr{};  // learning rate of the last step, if there is a decay
  std::optional<double> clip;
  double norm_type{2};      // p of the norm for `clip`, above 0
  std::string no_decay;     // pattern: names of parameters without weight decay; empty: none
  std::string adamw;        // pattern: names of parameters that AdamW updates in place of Muon
  bool step_in_backward{};  // fsdp updates each unit when its gradient has been reduced

  std::vector<ParameterGroup> parameter_groups() const;
};

inline constexpr int kAllUnits = std::numeric_limits<int>::max();  // as `limit`: no limit

struct ShardingConfig {
  std::string wrap{"auto"};  // auto, block, none, type:NAME, size:BYTES
  int shard_size{};          // ranks over which one replica of the model is sharded; 0: all ranks
  bool reshard_after_forward{true};
  bool prefetch{true};
  int limit{2};  // units that may be gathered at a time, see Prefetcher; kAllUnits: no limit
  std::optional<int> forward_limit, backward_limit;  // replace `limit` in one direction
  bool meta_init{true};

  int limit_in_forward() const { return prefetch ? forward_limit.value_or(limit) : 1; }
  int limit_in_backward() const { return prefetch ? backward_limit.value_or(limit) : 1; }
};

struct PrecisionConfig {
  MixedPrecisionPolicy policy;  // of all parameters except those that keep fp32
  std::string keep_fp32;        // pattern: names of parameters that keep fp32; empty: none
  std::optional<LossScaler> loss_scaler;  // at the start of the run; none: the loss is not scaled

  bool keeps_fp32(const std::string& parameter) const;
  MixedPrecisionPolicy policy_of(const std::string& parameter) const;
};

struct MemoryConfig {
  int activation_checkpoint_every{};  // every K-th block recomputes its activations; 0: none
  std::string offload_dir;     // folder of files for moments and gradient sums; empty: in memory
  int64_t offload_resident{};  // [bytes] of a rank's moments to keep in memory, not in the files
};

struct CheckpointConfig {
  std::string dir;              // folder to save checkpoints in; empty: none
  int64_t save_every{1};        // [steps]
  std::optional<int64_t> keep;  // number of latest checkpoints to keep; none: all
  CheckpointFormat format{CheckpointFormat::sharded};
  bool async{};          // write checkpoints while training continues
  std::string resume;    // folder of the checkpoint to resume from; empty: none
  bool auto_resume{};    // whether --resume is auto
  int64_t first_step{};  // index of the run's first step: the steps that the checkpoint has done
};

// The files that a run writes (empty: not written), and what it prints instead of training.
struct ReportsConfig {
  std::string json;
  std::string log;      // gets a line after each step that `log_every` selects
  std::string trace;    // the timeline
  std::string profile;  // trace of PyTorch's profiler
  std::string hashes;   // folder for the hashes of the tensors that each step makes
  // Event, as JSON, whose values are written to `hashes` too; empty: none.
  std::string captured_event;
  std::string commit;         // of the program's sources, for the JSON file; empty: not known
  std::string saved_options;  // the options of the command line, in the format of --config
  int64_t log_every{1};       // see ReportedSteps
  std::string receipt;        // the file of the run's receipt
  int64_t receipt_sample{8};  // Sampling::every
  std::string receipt_key;    // the private key that signs the receipt; empty: none
  int64_t watch{};            // see Watch; 0: the run is not audited while it trains
  std::string watch_program;  // the program that computes again; empty: this one
  // The options on which the numbers of the run depend, in the format of --config, except --world
  // and --microbatches.
  std::string audited_options;
  bool dry_run{};         // print what the run would need
  bool print_units{};     // print the table of the units
  bool print_settings{};  // print the settings that decide which numbers the run computes
};

struct DebugConfig {
  bool poison{};  // fill memory that must not be read with NaN
};

struct TrainConfig {
  RanksConfig ranks;
  ModelConfig model;
  DataConfig data;
  TrainingConfig training;
  OptimizerConfig optimizer;
  ShardingConfig sharding;
  PrecisionConfig precision;
  MemoryConfig memory;
  CheckpointConfig checkpoint;
  ReportsConfig reports;
  DebugConfig debug;

  // Returns the number of the last step, from 1 on.
  int64_t end_step() const {
    return training.stop_after > 0 ? std::min(training.stop_after, training.steps) : training.steps;
  }
  // Returns whether the run evaluates held-out rows before its first step. A run that continues
  // does not, because the run before it has evaluated its parameters.
  bool evaluates_before_training() const {
    return data.eval_every > 0 && checkpoint.first_step == 0;
  }
  // Returns the learning rate of a step, counted from 0. The rate grows linearly over the warmup.
  // Then it stays at optimizer.lr or falls as lr_decay describes, from optimizer.lr in the first
  // step after the warmup to min_lr in the last step of the run.
  double lr_of(int64_t step) const;
  // Returns the number of ranks over which a replica is sharded. In ddp, returns the number of all
  // ranks: each holds a replica, but they add their microbatches as the ranks of one replica do.
  int shards() const;
  const char* sharding_strategy() const;  // of fsdp: full, grad_op, no or hybrid
  BatchPartition batch_partition() const;
  bool on_cuda() const { return ranks.comm.device == c10::kCUDA; }
};

}  // namespace fsdp
