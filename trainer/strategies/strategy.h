#pragma once

#include <comm/communicator.h>
#include <comm/tree_sum.h>
#include <optim/read_item.h>
#include <optim/shard_layout.h>
#include <state/model_state.h>
#include <strategies/workload.h>

#include <functional>
#include <memory>
#include <vector>

namespace fsdp {

// One way to train a model on W ranks: single, ddp or fsdp. The trainer knows no more of them than
// this. A strategy owns the model and its optimizer. All ranks make the same calls, in the same
// order. The batch of a step is cut into the parts of config.arrangement(): each rank computes one
// part in each turn.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Runs forward and backward on this rank's parts. When it returns, the gradients are the means
  // over all parts: summed as the arrangement says, then divided once. Returns this rank's
  // losses, fp64 [turns] on its device, or their sum [1] if the arrangement sums turns first.
  // (single computes all parts, and returns their sum, [1].) On CUDA the CPU waits for nothing.
  virtual at::Tensor forward_backward(int64_t step) = 0;

  // What the model gives for one of the `parts` parts of some rows: [] or [n].
  using PartValue = std::function<at::Tensor(Module& model, int part, int parts)>;
  // `value` of this rank's parts, without gradients, summed as forward_backward() sums losses. With
  // n values, they are the last dimension: [turns, n]. Leaves no unit unsharded.
  virtual at::Tensor evaluate(const PartValue& value) = 0;

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

// Backward from `scale` times the loss.
void backward(const at::Tensor& loss, int64_t scale);

// The parts that `rank` computes, in the order of its turns.
std::vector<int> parts_of(const Arrangement& arrangement, int rank);

// How a strategy computes a part.
struct Turn {
  std::function<at::Tensor(int part)> loss;
  // Adds the gradients of `loss` to the running sum, or begins a new sum with them.
  std::function<void(const at::Tensor& loss, bool begins)> backward;
  std::function<void(TreeSum& sums)> add;          // calls added() for the running sum
  std::function<std::vector<at::Tensor>()> leave;  // takes the running sum away, to be put aside
  bool apart{};                                    // each part begins a new sum
};

// Computes these parts one after another, and adds their gradients as `sums` says. Returns the
// losses.
std::vector<at::Tensor> compute_parts(const std::vector<int>& parts, const Arrangement& sums,
                                      const Turn& turn);

// The names and sizes of `parameters`, and no ranges.
ModelState state_without_ranges(const std::vector<NamedParameter>& parameters);

// Their sum as the arrangement adds parts, fp64 [1]; of [n] each, [1, n].
at::Tensor sum_of_losses(const std::vector<at::Tensor>& losses, const Arrangement& arrangement);

// The losses of a rank's parts, [] or [n] each and in the order of its turns, as forward_backward()
// returns them.
at::Tensor sums_of_losses(const std::vector<at::Tensor>& losses, const Arrangement& arrangement);

// `value` of each of these parts, of all `of`, without gradients.
std::vector<at::Tensor> values_of_parts(Module& model, const Strategy::PartValue& value,
                                        const std::vector<int>& parts, int of);

// ddp: a replica on each rank of `comm`. In each turn gradients are summed in buckets while
// backward goes on. Without one, single: this process computes the parts of config.world ranks, and
// adds them as those would. `layout` is fsdp's.
std::unique_ptr<Strategy> make_replica_strategy(const TrainConfig& config, Workload workload,
                                                ShardLayout layout,
                                                std::shared_ptr<Communicator> comm = nullptr);

// Makes the file of config.offload_dir for the moments of `rank`, and puts it into the optimizer's
// options. Leaves a config without such a folder as it is. Throws what StateFile's constructor
// throws, also if the folder has no room now for what put_aside() will put there.
TrainConfig with_state_file(TrainConfig config, const ShardLayout& layout, int rank);

// A sum of gradients that waits while other parts are computed (TreeSum): `sum` itself, or, if
// `offload_dir` is not empty, a copy in a file there. Throws what copies_in_file() throws.
std::vector<at::Tensor> put_aside(std::vector<at::Tensor> sum, const std::string& offload_dir);

}  // namespace fsdp
