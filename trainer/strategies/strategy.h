#pragma once

#include <comm/communicator.h>
#include <optim/read_item.h>
#include <optim/shard_layout.h>
#include <state/model_state.h>
#include <strategies/workload.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
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

// The names and sizes of `parameters`, and no ranges.
ModelState state_without_ranges(const std::vector<NamedParameter>& parameters);

// What the strategies have in common: a process computes its parts of the batch one after another,
// and adds up their gradients as the arrangement says.
class PartsStrategy : public Strategy {
 public:
  at::Tensor forward_backward(int64_t step) final;
  at::Tensor evaluate(const PartValue& value) final;
  void set_loss_scale(int64_t scale) override { loss_scale_ = scale; }
  ModelState state() final;
  const ShardLayout& layout() const final { return layout_; }

 protected:
  // `rank` computes its own parts; none: this process computes those of all ranks.
  PartsStrategy(const TrainConfig& config, Workload workload, std::optional<int> rank);

  virtual void begin() {}          // of forward_backward() and of evaluate()
  virtual void begin_forward() {}  // of a part
  // Adds the gradients of `loss` to the running sum, or begins a new sum with them.
  virtual void compute_gradients(const at::Tensor& loss, bool begins) = 0;
  virtual bool adds_apart() const { return false; }  // each part begins a new sum
  virtual void add(TreeSum& sums) = 0;               // calls added() for the running sum
  virtual std::vector<at::Tensor> take_sum() = 0;    // the running sum, to be put aside
  // The gradients of all parts have been added. Makes them means over all ranks' parts.
  virtual void end_parts() = 0;
  virtual std::vector<StateRange> ranges() = 0;  // of state()

  Workload workload_;
  Arrangement arrangement_;
  std::vector<int> parts_;  // of this process, in the order of its turns
  int64_t loss_scale_{1};
  std::shared_ptr<Module> model_;
  ShardLayout layout_;

 private:
  at::Tensor sum_of(const std::vector<at::Tensor>& losses) const;

  bool plays_all_ranks_;
  std::string offload_dir_;  // empty: sums wait in memory
};

// The module of each unit of the layout of `root`, in the layout's order;
// nullptr for units that are marked as the root's, whose names are no paths. Throws
// std::logic_error, which names the unit, if the model has no such module, or one without hooks:
// then the layout is wrong.
std::vector<Module*> modules_of_units(const torch::nn::Module& root, const ShardLayout& layout);

// Sets in `layout`, of the model `root`, what depends on the modules' backward: unread_in_backward.
void note_what_backward_reads(const torch::nn::Module& root, ShardLayout& layout);

// Makes the file of config.offload_dir for the moments of `rank`, and puts it into the optimizer's
// options. Leaves a config without such a folder as it is. Throws what StateFile's constructor
// throws, also if the folder has no room now for sums of gradients that wait while other parts are
// computed (TreeSum): they lie there too.
TrainConfig with_state_file(TrainConfig config, const ShardLayout& layout, int rank);

// ddp: a replica on each rank of `comm`. In each turn gradients are summed in buckets while
// backward goes on. Without one, single: this process computes the parts of config.world ranks, and
// adds them as those would. `layout` is fsdp's.
std::unique_ptr<Strategy> make_replica_strategy(const TrainConfig& config, Workload workload,
                                                ShardLayout layout,
                                                std::shared_ptr<Communicator> comm = nullptr);

}  // namespace fsdp
