#pragma once

#include <config/train_config.h>
#include <nn/module.h>
#include <optim/read_item.h>
#include <optim/shard_layout.h>
#include <state/model_state.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// A way to train a model on W ranks: single, ddp or fsdp. The trainer uses the modes only through
// this class. A strategy owns the model and its optimizer. All ranks make the same calls, in the
// same order. The batch of a step is cut into the microbatches of config.batch_partition(): each
// rank computes one microbatch in each accumulation step.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Runs forward and backward on this rank's microbatches. When it returns, the gradients are the
  // means over all microbatches: summed in the order of config.batch_partition(), then divided
  // once.
  // - Returns this rank's losses, fp64 [accumulation steps] on its device, or their sum [1] with
  //   --reduce-gradients last. single computes all microbatches and returns their sum [1].
  // - On CUDA, the CPU does not wait for the GPU.
  virtual at::Tensor forward_backward(int64_t step) = 0;

  // A function that cuts some rows into `microbatches` equal parts, and evaluates the model on part
  // `microbatch`. Returns [] or [n].
  using MicrobatchValue =
      std::function<at::Tensor(Module& model, int microbatch, int microbatches)>;
  // Evaluates `value` on this rank's microbatches, without gradients. Returns the values, or their
  // sum, as forward_backward() returns losses. If `value` returns [n], n is the last dimension of
  // the result: [accumulation steps, n] or [1, n]. Leaves no unit unsharded.
  virtual at::Tensor evaluate(const MicrobatchValue& value) = 0;

  // Scales the gradients so that their norm over all parameters is at most `max_norm`. Returns the
  // norm before scaling, which depends only on the gradients: for norm_type 2 the root of the exact
  // sum of all squares, for any other the norm of p_norm.h. Throws what check_norm_type() throws.
  virtual double clip_grad_norm(double max_norm, double norm_type) = 0;

  // Updates the parameters and drops the gradients.
  virtual void step() = 0;

  // Call this in place of step() to skip an update: drops the gradients and leaves the parameters
  // unchanged. Allocates optimizer state that does not exist yet, as step() would.
  virtual void skip_step() = 0;

  // Sets the factor of the loss, a power of two, for all later backward passes. forward_backward()
  // divides the gradients once, by the product of `scale` and the number of microbatches.
  virtual void set_loss_scale(int64_t scale) = 0;

  // Only on rank 0, calls `visit` with every distinct parameter, whole and on the CPU, in the order
  // of first registration. Gathers one unit at a time. The tensor is valid only during the call.
  virtual void full_parameters(const ParameterVisitor& visit) = 0;

  // This rank's part of a parameter and of its gradient, as views.
  struct Owned {
    std::string parameter;  // its first name
    int64_t begin{};        // [elements] in the parameter
    at::Tensor value;       // [n]
    at::Tensor gradient;    // [n] after forward_backward(), until step(); undefined if frozen
  };
  // Returns this rank's parts of all parameters. Calls no collective and changes nothing.
  virtual std::vector<Owned> owned() const = 0;

  // Returns the parameters, and this rank's ranges of their state, to read or to write.
  // - Allocates state that does not exist before the first step. Calls no collective.
  // - The ranges may be written until the next call of another function of this object. After that
  //   they may only be read; they then have the values that the last step() left.
  virtual ModelState state() = 0;
  // Returns the `locate` for load_checkpoint(); null if the ranges of state() are whole parameters.
  virtual Locate locate() const { return nullptr; }

  virtual const ShardLayout& layout() const = 0;
};

}  // namespace fsdp
