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
  // The options of all communicators. comm.device is also the device of parameters and batches.
  CommunicatorOptions comm{.keep_log = true};
  // [FLOP/s] at which FlopClock counts the time that a rank computes; 0: time is measured.
  double flops{};
  OnLostHost on_lost_host{OnLostHost::end};
};

struct ModelConfig {
  std::string name{"small"};
  // Number of token ids of the model; 0: the model's own number, or more if the data needs more.
  int64_t vocabulary{};
  // Folder of a Hugging Face model whose parameters the run starts with; empty: random parameters,
  // drawn from the seed.
  std::string init;
  std::string freeze;  // pattern: names of parameters that are not trained; empty: none
  // If `lora` is above 0, the LoRA adapters are trained, and all other parameters are frozen.
  int64_t lora{};           // rank of the LoRA adapters; 0: the model has no adapters
  double lora_alpha{};      // the output of an adapter is multiplied by lora_alpha / lora
  std::string lora_target;  // pattern: names of the layers that get adapters
};

struct DataConfig {
  DataKind kind{DataKind::text};
  // The paths of one or two files of token ids: the run trains on the first one; the ids of the
  // second one, if there is one, are held out for evaluations.
  std::vector<std::string> tokens;
  int64_t modulus{};  // the modulus of DataKind::modular
  std::vector<std::string> text;
  // The content of the files whose paths are in `text`; null: the files are not read yet.
  std::shared_ptr<const std::string> text_content;
  int64_t eval_every{};  // steps between evaluations on held-out data; 0: the run does not evaluate
};

struct TrainingConfig {
  int64_t steps{};
  // The run ends after this step, counted from 1; 0: after the last of `steps`.
  int64_t stop_after{};
  // If set, the run does not train: in its first step it computes only the microbatch with this
  // index, and then ends without an update.
  std::optional<int> only_microbatch;
  int64_t batch{};  // rows of the global batch of a step
  // Number of microbatches of the global batch, a multiple of the number of ranks; 0: one
  // microbatch for each rank.
  int microbatches{};
  ReduceGradients reduce_gradients{ReduceGradients::each};
  int64_t seq{};
  uint64_t seed{42};
  // Says whether the run continues even if a loss or the norm of the gradients is not finite.
  bool allow_nan{};
};

// The options of the update rule, and the settings that change the learning rate or the gradients
// before an update. If there is a warmup or a decay of the learning rate,
// OptimizerOptions::lr_factor is not null.
struct OptimizerConfig : OptimizerOptions {
  int64_t warmup{};  // number of steps over which the learning rate grows to `lr`
  LrDecay lr_decay{LrDecay::none};
  double min_lr{};  // learning rate of the last step, if lr_decay is not none
  std::optional<double> clip;
  double norm_type{2};   // p of the p-norm of the gradients that `clip` limits, above 0
  std::string no_decay;  // pattern: names of parameters without weight decay; empty: none
  std::string adamw;     // pattern: names of parameters that AdamW updates in place of Muon
  // Whether, in --mode fsdp, each unit is updated in the backward pass, as soon as its gradient is
  // reduced.
  bool step_in_backward{};

  std::vector<ParameterGroup> parameter_groups() const;
};

// The value of ShardingConfig::limit that stands for no limit: all units may be gathered at a time.
inline constexpr int kAllUnits = std::numeric_limits<int>::max();

struct ShardingConfig {
  std::string wrap{"auto"};  // value of --wrap: auto, block, none, type:NAME or size:BYTES
  int shard_size{};  // number of ranks over which a replica of the model is sharded; 0: all ranks
  bool reshard_after_forward{true};
  bool prefetch{true};
  // The most units that may be gathered at a time, including the running one (see Prefetcher);
  // kAllUnits: no limit.
  int limit{2};
  // The most units that may be gathered at a time in the forward pass, and in the backward pass;
  // empty: `limit`.
  std::optional<int> forward_limit, backward_limit;
  bool meta_init{true};

  int limit_in_forward() const { return prefetch ? forward_limit.value_or(limit) : 1; }
  int limit_in_backward() const { return prefetch ? backward_limit.value_or(limit) : 1; }
};

struct PrecisionConfig {
  MixedPrecisionPolicy policy;  // dtypes of all parameters except those that keep_fp32 matches
  std::string keep_fp32;  // pattern: names of the parameters that are fp32 in any case; empty: none
  // The loss scaler at the start of the run; empty: the loss is not scaled.
  std::optional<LossScaler> loss_scaler;

  bool keeps_fp32(const std::string& parameter) const;
  MixedPrecisionPolicy policy_of(const std::string& parameter) const;
};

struct MemoryConfig {
  // K: every K-th block recomputes its activations in the backward pass; 0: no block does.
  int activation_checkpoint_every{};
  // Folder for the files that hold the optimizer's moments and sums of gradients (--offload
  // optimizer); empty: these are in memory.
  std::string offload_dir;
  // Number of bytes of a rank's moments that stay in memory if offload_dir is set.
  int64_t offload_resident{};
};

struct CheckpointConfig {
  std::string dir;              // folder to save checkpoints in; empty: none
  int64_t save_every{1};        // number of steps between two checkpoints
  std::optional<int64_t> keep;  // number of latest checkpoints to keep; empty: all
  CheckpointFormat format{CheckpointFormat::sharded};
  bool async{};        // whether checkpoints are written while training continues
  std::string resume;  // folder of the checkpoint to resume from; empty: none
  bool auto_resume{};  // whether the command line has --resume auto
  // Index of the run's first step: the number of steps that the run had made when the checkpoint of
  // `resume` was saved; 0 without a checkpoint.
  int64_t first_step{};
};

// The files that a run writes (empty: not written), and what the program prints instead of
// training.
struct ReportsConfig {
  std::string json;
  // File of the log, which gets a line of JSON after each step that log_every selects.
  std::string log;
  std::string trace;    // file for the timeline of the events of all ranks
  std::string profile;  // file for what PyTorch's profiler records
  std::string hashes;   // folder for the hashes of the tensors that each step makes
  // An EventKey as JSON: the files in `hashes` get not only the hash of this event but also its
  // values; empty: the files get the values of no event.
  std::string captured_event;
  // The commit of the program's sources, which the JSON file reports; empty: not known.
  std::string commit;
  // The options that were given, in the format of --config, which are saved beside a checkpoint.
  std::string saved_options;
  // A line is printed and logged for each step whose number, counted from 1, is a multiple of
  // log_every, for the first step and for the last step (ReportedSteps).
  int64_t log_every{1};
  std::string receipt;  // file of the run's receipt
  // The receipt has the hashes of about one in receipt_sample of the tensors that the steps make,
  // and of some tensors in any case (see Sampling).
  int64_t receipt_sample{8};
  // The private key that signs the receipt, as the text of its PEM file; empty: no signature.
  std::string receipt_key;
  // The most microbatches a minute that Watch lets another process compute again while the run
  // trains; 0: none.
  int64_t watch{};
  // Path of the program that Watch starts to compute a microbatch again; empty: the program that
  // trains.
  std::string watch_program;
  // The options that the receipt has, in the format of --config: those on which the numbers of the
  // run depend, except --world and --microbatches.
  std::string audited_options;
  // If this is true, the program prints how much memory the run would need, and trains nothing.
  bool dry_run{};
  bool print_units{};  // whether to print the table of the units, and to train nothing
  // If this is true, the program prints the settings that decide which numbers the run computes,
  // and trains nothing.
  bool print_settings{};
};

struct DebugConfig {
  bool poison{};  // whether to fill freed memory, unwritten memory and padding with NaN
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

  // Returns the number of the run's last step, counted from 1.
  int64_t end_step() const {
    return training.stop_after > 0 ? std::min(training.stop_after, training.steps) : training.steps;
  }
  // Returns whether the run evaluates held-out rows before its first step. A run that resumes from
  // a checkpoint does not, because the run that saved the checkpoint has evaluated these
  // parameters.
  bool evaluates_before_training() const {
    return data.eval_every > 0 && checkpoint.first_step == 0;
  }
  // Returns the learning rate of step number `step`, counted from 0. The rate grows linearly over
  // the warmup. Then it stays at optimizer.lr or falls as lr_decay describes, from optimizer.lr in
  // the first step after the warmup to min_lr in the last step of the run.
  double lr_of(int64_t step) const;
  // Returns the number of ranks over which a replica is sharded. In --mode ddp, returns the number
  // of all ranks, although each rank holds a replica, because BatchPartition adds the gradients of
  // all ranks of ddp as those of the ranks of one replica.
  int shards() const;
  // Returns the word of --strategy for this config of --mode fsdp: full, grad_op, no or hybrid.
  const char* sharding_strategy() const;
  BatchPartition batch_partition() const;
  bool on_cuda() const { return ranks.comm.device == c10::kCUDA; }
};

}  // namespace fsdp
