#pragma once

#include <config/batch_partition.h>
#include <strategies/strategy.h>
#include <strategies/workload.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// The part of a strategy that all modes share: a process computes its microbatches one after
// another, and adds their gradients in the order of config.batch_partition().
class MicrobatchStrategy : public Strategy {
 public:
  at::Tensor forward_backward(int64_t step) final;
  at::Tensor evaluate(const MicrobatchValue& value) final;
  void set_loss_scale(int64_t scale) override { loss_scale_ = scale; }
  ModelState state() final;
  const ShardLayout& layout() const final { return layout_; }

 protected:
  // `rank`: this process computes the microbatches of this rank; if it has no value, the
  // microbatches of all ranks.
  MicrobatchStrategy(const TrainConfig& config, Workload workload, std::optional<int> rank);

  virtual void begin() {}  // Called at the start of forward_backward() and of evaluate().
  // Called by forward_backward() before each forward of a microbatch.
  virtual void begin_forward() {}
  // Runs the backward pass of `loss`. Adds its gradients to the running sum or, if `begins` is
  // true, begins a new running sum with them.
  virtual void compute_gradients(const at::Tensor& loss, bool begins) = 0;
  // Returns whether each microbatch begins a new running sum of gradients.
  virtual bool adds_apart() const { return false; }
  virtual void add(TreeSum& sums) = 0;  // Passes the running sum of gradients to sums.fold().
  // Moves the running sum of gradients out of the model.
  virtual std::vector<at::Tensor> take_sum() = 0;
  // Called when this process has added the gradients of all its microbatches. With
  // --reduce-gradients last, reduces the sums over ranks. Afterwards the gradients are means over
  // the microbatches of all ranks.
  virtual void end_microbatches() = 0;
  // Returns the ranges that are part of the result of state().
  virtual std::vector<StateRange> ranges() = 0;

  Workload workload_;
  BatchPartition partition_;
  // The microbatches that this process computes, in this order: those that `partition_` gives it
  // or, if config.training.only_microbatch is set, only that microbatch.
  std::vector<int> microbatches_;
  int64_t loss_scale_{1};
  std::shared_ptr<Module> model_;
  ShardLayout layout_;

 private:
  at::Tensor sum_of(const std::vector<at::Tensor>& losses) const;

  bool plays_all_ranks_;
  // Folder for files with the earlier partial sums of gradients; empty: the sums stay in memory.
  std::string offload_dir_;
};

}  // namespace fsdp
