#pragma once

#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <config/arrangement.h>
#include <optim/loss_scaler.h>
#include <optim/mixed_precision.h>
#include <optim/update_rule.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

inline constexpr int kAllUnits = std::numeric_limits<int>::max();  // no limit to prefetch

// The settings of a training run. The --help of `./fsdp train` explains each.
struct TrainConfig {
  std::string mode{"single"};  // single, ddp, fsdp
  int world{1};
  std::string model{"small"};
  int64_t vocabulary{};  // ids of the model; 0: its own, or more if the data has more
  // text, tokens, modular, pattern, or the published recipe's random tokens
  std::string data{"text"};
  std::vector<std::string> tokens;  // a file of ids, and one that is held out
  int64_t modulus{};                // of modular addition
  std::vector<std::string> text;
  std::shared_ptr<const std::string> text_content;  // of these files; null: not read yet
  int64_t steps{};
  int64_t eval_every{};  // steps from one evaluation of what is held out to the next; 0: none
  int64_t batch{};       // global rows a step
  int parts{};           // of the global batch, a multiple of the ranks; 0: one for each rank
  std::string accumulate{"each"};  // each, last: when the gradients of a rank's parts are reduced
  int64_t seq{};
  uint64_t seed{42};
  OptimizerOptions optimizer;  // has an lr_factor if one of the next two is set
  int64_t warmup{};            // [steps]
  std::string lr_decay;        // cosine, linear; empty: none
  double min_lr{};             // at its end, the last step
  std::string offload_dir;     // where the optimizer's moments lie in files; empty: in memory
  int64_t pinned{};            // [bytes] of a rank's moments that stay in memory all the same
  bool step_in_backward{};     // each unit is updated, in fsdp, when its gradient has been reduced
  std::optional<double> clip;
  double norm_type{2};       // of clip; above 0
  std::string no_decay;      // pattern of parameters without weight decay; empty: none
  std::string wrap{"auto"};  // auto, block, none, type:NAME, size:BYTES
  bool print_units{};        // and train nothing
  bool print_settings{};     // the same of those that decide which numbers the run computes
  int shard_size{};          // ranks that share out one replica of the model; 0: all ranks
  bool reshard_after_forward{true};
  bool prefetch{true};
  int checkpoint_every{};  // every K-th block recomputes its activations in backward; 0: none
  int limit{2};            // units gathered at a time, or kAllUnits
  std::optional<int> forward_limit, backward_limit;  // in place of it, in one direction
  MixedPrecisionPolicy precision;
  std::string keep_fp32;  // pattern of parameters that it does not apply to; empty: none
  std::optional<LossScaler> loss_scaler;  // as the run begins; none: the loss is not scaled
  bool meta_init{true};
  int threads{1};
  std::string checkpoint_dir;                // of the checkpoints to save; empty: none
  int64_t save_every{1};                     // [steps]
  std::optional<int64_t> keep;               // checkpoints, the latest; none: all
  std::string checkpoint_format{"sharded"};  // sharded, full
  std::string resume;                        // folder of the checkpoint to go on from; empty: none
  bool resumes_by_itself{};                  // --resume auto
  int64_t first_step{};  // of this run: the steps that the checkpoint has behind it
  std::string init;      // folder with Hugging Face's model to begin with; empty: the seed
  bool poison{};         // NaN in memory that nobody may use
  bool allow_nan{};      // go on when a loss or the norm of the gradients is not finite
  CommunicatorOptions comm{.keep_log = true};  // and the device of parameters and batches
  std::string json;                            // file; empty: none
  std::string log;                             // file that gets a line at each step; empty: none
  std::string trace;                           // file of the timeline; empty: none
  std::string profile;                         // file of PyTorch's profiler; empty: none
  std::string hashes;   // folder for a hash of all that a step makes; empty: none
  std::string capture;  // the event of which it gets the values too, as JSON; empty: none
  std::string commit;   // of the program's sources, for the JSON file; empty: not known
  std::string on_lost_host{"end"};  // end, continue: what the ranks of other hosts do
  std::string given;                // the options of the command line, as --config reads them

  std::vector<ParameterGroup> parameter_groups() const;
  // Of a step, from 0 on. It grows in equal parts over `warmup` steps, then falls as lr_decay says:
  // the last step has min_lr.
  double lr_of(int64_t step) const;
  bool keeps_fp32(const std::string& parameter) const;
  MixedPrecisionPolicy precision_of(const std::string& parameter) const;
  int limit_in_forward() const { return prefetch ? forward_limit.value_or(limit) : 1; }
  int limit_in_backward() const { return prefetch ? backward_limit.value_or(limit) : 1; }
  // Ranks of a replica. In ddp each rank has one, and all add their parts as if they were shards.
  int shards() const { return mode == "ddp" || shard_size == 0 ? world : shard_size; }
  const char* strategy() const;  // full, grad_op, no or hybrid: the strategy of fsdp
  Arrangement arrangement() const {
    return {shards(), world / shards(), parts == 0 ? 1 : parts / world, accumulate == "last"};
  }
  bool on_cuda() const { return comm.device == c10::kCUDA; }
};

}  // namespace fsdp
