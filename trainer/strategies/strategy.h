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

// One way to train a model on W ranks: single, ddp or fsdp. The trainer knows no more of them than
// this. A strategy owns the model and its optimizer. All ranks make the same calls, in the same
// order. The batch of a step is cut into the parts of config.batch_partition(): each rank computes
// one part in each turn.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Runs forward and backward on this rank's parts. When it returns, the gradients are the means
  // over all parts: summed as the arrangement says, then divided once. Returns this rank's
  // losses, fp64 [turns] on its device, or their sum [1] if the arrangement sums turns first.
  // (single computes all parts, and returns their sum, [1].) On CUDA the CPU waits for nothing.
  virtual at::Tensor forward_backward(int64_t step) = 0;

  // What the model gives for one of the `parts` parts of some rows: [] or [n].
  using MicrobatchValue =
      std::function<at::Tensor(Module& model, int microbatch, int microbatches)>;
  // `value` of this rank's parts, without gradients, summed as forward_backward() sums losses. With
  // n values, they are the last dimension: [turns, n]. Leaves no unit unsharded.
  virtual at::Tensor evaluate(const MicrobatchValue& value) = 0;

  // Scales the gradients so that their norm over all parameters is at most `max_norm`. Returns the
  // norm before, which depends on the gradients alone: for a norm_type of 2 the root of the exact
  // sum of all squares, else that of p_norm.h. Throws what check_norm_type() throws.
  virtual double clip_grad_norm(double max_norm, double norm_type) = 0;

  // Updates the parameters and drops the gradients.
  virtual void step() = 0;

  // In place of step(): drops the gradients and changes nothing. Optimizer state that does not
  // exist is allocated, as step() would.
  virtual void skip_step() = 0;

  // From now on backward begins with the loss times `scale`, a power of two, and forward_backward()
  // divides by it together with the number of parts.
  virtual void set_loss_scale(int64_t scale) = 0;

  // On rank 0 alone, calls `visit` with every distinct parameter, whole and on the CPU, in the
  // order of first registration. One unit at a time is gathered. The tensor is valid during the
  // call only.
  virtual void full_parameters(const ParameterVisitor& visit) = 0;

  // This rank's part of a parameter and of its gradient, as views.
  struct Owned {
    std::string parameter;  // its first name
    int64_t begin{};        // [elements] in the parameter
    at::Tensor value;       // [n]
    at::Tensor gradient;    // [n] from forward_backward() to step(); undefined if it is frozen
  };
  // Calls no collective, and changes nothing.
  virtual std::vector<Owned> owned() const = 0;

  // The parameters, and this rank's ranges of their state, to be read or to be written. State that
  // does not exist before the first step is allocated. The ranges are valid until the next call of
  // another function; later they may only be read, and hold what step() leaves. Calls no
  // collective.
  virtual ModelState state() = 0;
  // What load_checkpoint() takes beside these ranges; empty if they are whole parameters.
  virtual Locate locate() const { return nullptr; }

  virtual const ShardLayout& layout() const = 0;
};

}  // namespace fsdp
