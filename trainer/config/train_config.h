#pragma once

#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <config/batch_partition.h>
#include <config/words.h>
#include <optim/loss_scaler.h>
#include <optim/mixed_precision.h>
#include <optim/update_rule.h>
#include <state/checkpoint_format.h>

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
  CommunicatorOptions comm{.keep_log = true};  // and the device of parameters and batches
  OnLostHost on_lost_host{OnLostHost::end};
};

struct ModelConfig {
  std::string name{"small"};
  int64_t vocabulary{};  // ids of the model; 0: its own, or more if the data has more
  std::string init;      // folder with Hugging Face's model to begin with; empty: the seed
};

struct DataConfig {
  DataKind kind{DataKind::text};
  std::vector<std::string> tokens;  // a file of ids, and one that is held out
  int64_t modulus{};                // of modular addition
  std::vector<std::string> text;
  std::shared_ptr<const std::string> text_content;  // of these files; null: not read yet
  int64_t eval_every{};  // steps from one evaluation of what is held out to the next; 0: none
};

struct TrainingConfig {
  int64_t steps{};
  int64_t batch{};     // global rows a step
  int microbatches{};  // of the global batch, a multiple of the ranks; 0: one for each rank
  ReduceGradients reduce_gradients{ReduceGradients::each};
  int64_t seq{};
  uint64_t seed{42};
  bool allow_nan{};  // go on when a loss or the norm of the gradients is not finite
};

// The options of the update rule, and what else decides on an update. lr_factor is set if there is
// a warmup or a decay.
struct OptimizerConfig : OptimizerOptions {
  int64_t warmup{};  // [steps]
  LrDecay lr_decay{LrDecay::none};
  double min_lr{};  // rate of the last step, if it decays
  std::optional<double> clip;
  double norm_type{2};      // of clip; above 0
  std::string no_decay;     // pattern of parameters without weight decay; empty: none
  bool step_in_backward{};  // fsdp updates each unit when its gradient has been reduced

  std::vector<ParameterGroup> parameter_groups() const;
};

inline constexpr int kAllUnits = std::numeric_limits<int>::max();  // no limit to prefetch

struct ShardingConfig {
  std::string wrap{"auto"};  // auto, block, none, type:NAME, size:BYTES
  int shard_size{};          // ranks that share out one replica of the model; 0: all ranks
  bool reshard_after_forward{true};
  bool prefetch{true};
  int limit{2};                                      // units gathered at a time, or kAllUnits
  std::optional<int> forward_limit, backward_limit;  // in place of `limit`, in one direction
  bool meta_init{true};

  int limit_in_forward() const { return prefetch ? forward_limit.value_or(limit) : 1; }
  int limit_in_backward() const { return prefetch ? backward_limit.value_or(limit) : 1; }
};

struct PrecisionConfig {
  MixedPrecisionPolicy policy;            // of all parameters but those that keep fp32
  std::string keep_fp32;                  // pattern of parameters; empty: none keeps it
  std::optional<LossScaler> loss_scaler;  // as the run begins; none: the loss is not scaled

  bool keeps_fp32(const std::string& parameter) const;
  MixedPrecisionPolicy policy_of(const std::string& parameter) const;
};

struct MemoryConfig {
  int activation_checkpoint_every{};  // every K-th block recomputes its activations; 0: none
  std::string offload_dir;            // of the files of the optimizer's moments; empty: in memory
  int64_t offload_resident{};  // [bytes] of a rank's moments that stay in memory all the same
};

struct CheckpointConfig {
  std::string dir;              // of the checkpoints to save; empty: none
  int64_t save_every{1};        // [steps]
  std::optional<int64_t> keep;  // the latest checkpoints; none: all
  CheckpointFormat format{CheckpointFormat::sharded};
  std::string resume;    // folder of the checkpoint to go on from; empty: none
  bool auto_resume{};    // --resume auto
  int64_t first_step{};  // of this run: the steps that the checkpoint has behind it
};

// The files that a run writes, empty for none, and what is printed in place of training.
struct ReportsConfig {
  std::string json;
  std::string log;             // gets a line at each step
  std::string trace;           // the timeline
  std::string profile;         // what PyTorch's profiler sees
  std::string hashes;          // folder for a hash of all that a step makes
  std::string captured_event;  // the event of which `hashes` gets the values too, as JSON
  std::string commit;          // of the program's sources, for the JSON file; empty: not known
  std::string saved_options;   // the options of the command line, as --config reads them
  bool print_units{};
  bool print_settings{};  // those that decide which numbers the run computes
};

struct DebugConfig {
  bool poison{};  // NaN in memory that must not be read
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

  // Returns the learning rate of a step, from 0 on. It grows in equal parts over the warmup, then
  // falls as lr_decay says: the last step has min_lr.
  double lr_of(int64_t step) const;
  // Returns the ranks of a replica. In ddp each rank has a replica, and all add their parts as if
  // they were shards.
  int shards() const;
  const char* sharding_strategy() const;  // of fsdp: full, grad_op, no or hybrid
  BatchPartition batch_partition() const;
  bool on_cuda() const { return ranks.comm.device == c10::kCUDA; }
};

}  // namespace fsdp
