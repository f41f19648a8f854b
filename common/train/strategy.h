#pragma once

#include <comm/communicator.h>
#include <config/train_config.h>
#include <data/batch.h>
#include <layout/shard_layout.h>
#include <nn/module.h>

#include <memory>

namespace fsdp {

// One way to train a model on W ranks: single, ddp or fsdp. The trainer knows no more of them than
// this. A strategy owns the model and its optimizer. All ranks make the same calls, in the same
// order.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Runs forward and backward on this rank's part of the global batch. When it returns, gradients
  // are averaged over the ranks. Returns this rank's loss, [] on its device. The mean loss of the
  // global batch is the mean of the ranks' losses. (single plays the ranks in turn and returns that
  // mean.) On CUDA the CPU waits for nothing.
  virtual at::Tensor forward_backward(const Batch& global) = 0;

  // The loss of the same part, without gradients.
  virtual double evaluate(const Batch& global) = 0;

  // Scales the gradients so that their norm over all parameters is at most `max_norm`. Returns the
  // norm before: fp64 sums of squares per (unit, shard) of the layout, added over the units of a
  // rank, then over ranks, as a tree.
  virtual double clip_grad_norm(double max_norm) = 0;

  // Updates the parameters and drops the gradients.
  virtual void step() = 0;

  // On rank 0 alone, calls `visit` with every distinct parameter, whole and on the CPU, in the
  // order of first registration. One unit at a time is gathered. The tensor is valid during the
  // call only.
  virtual void full_parameters(const ParameterVisitor& visit) = 0;

  virtual const ShardLayout& layout() const = 0;
};

// The loss of `model` on this rank's part of the global batch, []. Enters the phase forward.
at::Tensor local_loss(Module& model, const Batch& global, const Communicator& comm);

// One process that plays config.world ranks in turn. For each rank it runs a backward pass on that
// rank's rows; it adds the gradients as the tree of tree_sum.h and divides by W. `layout` is
// fsdp's.
std::unique_ptr<Strategy> make_single_strategy(const TrainConfig& config, ShardLayout layout);

// A replica on each rank. Gradients are averaged in buckets while backward goes on.
std::unique_ptr<Strategy> make_ddp_strategy(const TrainConfig& config, ShardLayout layout,
                                            std::shared_ptr<Communicator> comm);

}  // namespace fsdp
