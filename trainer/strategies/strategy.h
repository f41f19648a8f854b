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

// A way to train a model on W ranks: --mode single, ddp or fsdp. The trainer uses the modes only
// through this class. A strategy owns the model and its optimizer. All ranks make the same calls to
// their strategies, in the same order. The batch of a step is cut into the microbatches of
// config.batch_partition(): each rank computes one microbatch in each accumulation step.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Runs forward and backward on this rank's microbatches. When it returns, each gradient is the
  // mean over the microbatches of all ranks: their sum, added in the order of
  // config.batch_partition(), divided once.
  // - Returns the losses of this rank's microbatches, fp64 [accumulation steps] on the rank's
  //   device. With --reduce-gradients last, returns their sum [1]. In --mode single, returns the
  //   sum [1] of the losses of all microbatches.
  // - On CUDA, the CPU does not wait for the GPU.
  virtual at::Tensor forward_backward(int64_t step) = 0;

  // A function that cuts the rows that it evaluates into `microbatches` equal parts and evaluates
  // the model on part number `microbatch`. It returns a tensor of the shape [] or [n].
  using MicrobatchValue =
      std::function<at::Tensor(Module& model, int microbatch, int microbatches)>;
  // Calls `value` for each of this rank's microbatches, without gradients. Returns the values, or
  // their sum, in the cases in which forward_backward() returns the losses, or their sum. If
  // `value` returns [n], n is the last dimension of the result: [accumulation steps, n] or [1, n].
  // When it returns, no unit is unsharded.
  virtual at::Tensor evaluate(const MicrobatchValue& value) = 0;

  // Scales the gradients so that their norm over all parameters is at most `max_norm`. Returns the
  // norm before scaling. If norm_type is 2, the norm is the root of the exact sum of all squares;
  // for any other norm_type, p_norm.h defines it. The norm depends only on the gradients, not on
  // the ranks. Throws what check_norm_type() throws.
  virtual double clip_grad_norm(double max_norm, double norm_type) = 0;

  // Updates the parameters and drops the gradients.
  virtual void step() = 0;

  // Call this in place of step() to skip an update: drops the gradients and leaves the parameters
  // unchanged. Allocates optimizer state that does not exist yet, as step() would.
  virtual void skip_step() = 0;

  // Sets the factor by which the loss is multiplied, a power of two, in all later backward passes.
  // forward_backward() divides the gradients once, by the product of `scale` and the number of
  // microbatches.
  virtual void set_loss_scale(int64_t scale) = 0;

  // On rank 0, calls `visit` with every distinct parameter, whole and on the CPU, in the order of
  // first registration. All ranks call this function together, and one unit at a time is gathered.
  // The tensor that `visit` receives is valid only during the call.
  virtual void full_parameters(const ParameterVisitor& visit) = 0;

  // The part of a parameter that this rank holds, and of the parameter's gradient, as views.
  struct Owned {
    std::string parameter;  // name of the parameter; if it has several names, the first one
    int64_t begin{};        // index in the parameter of the part's first element
    at::Tensor value;       // [n] elements of the part
    // [n] the part of the gradient, from forward_backward() until step(). Undefined at other times,
    // and if the parameter is frozen.
    at::Tensor gradient;
  };
  // Returns the parts that this rank holds of all parameters. Calls no collective and changes
  // nothing.
  virtual std::vector<Owned> owned() const = 0;

  // Returns the model's parameters, and this rank's ranges of their training state, which the
  // caller may read or write.
  // - Allocates optimizer state that does not exist before the first step. Calls no collective.
  // - The caller may write the ranges until it calls another function of this object. Afterwards it
  //   may only read them; they have the values that the last step() left.
  virtual ModelState state() = 0;
  // Returns the argument `locate` of load_checkpoint(). It is null if the ranges of state() are
  // whole parameters.
  virtual Locate locate() const { return nullptr; }

  virtual const ShardLayout& layout() const = 0;
};

}  // namespace fsdp
