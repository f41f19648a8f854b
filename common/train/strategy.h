#pragma once

#include <config/train_config.h>
#include <data/batch.h>
#include <layout/shard_layout.h>

#include <functional>
#include <memory>
#include <string>

namespace fsdp {

// How a model is trained on W ranks: the trainer knows nothing else of single, ddp and fsdp. A
// strategy owns the model and its optimizer. Every call is made by all ranks, in the same order.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // One forward and backward on this rank's part of the global batch; gradients are averaged over
  // ranks when it returns. The mean loss of the global batch is the mean of the ranks' losses.
  // Returns this rank's loss, [] on its device; single plays the ranks in turn and returns their
  // mean. On CUDA the CPU waits for nothing.
  virtual at::Tensor forward_backward(const Batch& global) = 0;

  // The loss alone, as above, without gradients.
  virtual double evaluate(const Batch& global) = 0;

  // Scales the gradients so that their norm over all parameters is at most `max_norm`; the norm
  // before. fp64 partial sums per (unit, shard) of the layout, added in the order of ranks.
  virtual double clip_grad_norm(double max_norm) = 0;

  // Updates the parameters and drops the gradients.
  virtual void step() = 0;

  // Calls `visit` on rank 0, and on no other, with every distinct parameter, whole and on the CPU,
  // in the order of first registration; one unit at a time is in memory.
  virtual void full_parameters(const ParameterVisitor& visit) = 0;

  virtual const ShardLayout& layout() const = 0;
};

// One process that plays config.world ranks in turn: for each rank its own backward from zero
// gradients on its rows, the sum of the gradients in rank order, then the division by W. `layout`
// is the one that fsdp would use.
std::unique_ptr<Strategy> make_single_strategy(const TrainConfig& config, ShardLayout layout);

// A replica per rank; gradients averaged in buckets while backward goes on.
std::unique_ptr<Strategy> make_ddp_strategy(const TrainConfig& config, ShardLayout layout,
                                            std::shared_ptr<Communicator> comm);

// What the seven tasks add up to; declared again in task 7's header. The layout needs no ranks: it
// is what fully_shard would do to the model that `config` names.
struct Stack {
  std::unique_ptr<Strategy> (*make_fsdp_strategy)(const TrainConfig& config,
                                                  std::shared_ptr<Communicator> comm);
  ShardLayout (*shard_layout)(const TrainConfig& config);
};

}  // namespace fsdp
