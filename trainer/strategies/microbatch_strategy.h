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

  virtual void begin() {}          // called at the start of forward_backward() and evaluate()
  virtual void begin_forward() {}  // called before each forward of forward_backward()
  // Runs the backward pass of `loss`. Adds its gradients to the running sum or, if `begins` is
  // true, begins a new running sum with them.
  virtual void compute_gradients(const at::Tensor& loss, bool begins) = 0;
  virtual bool adds_apart() const { return false; }  // whether each microbatch begins a new sum
  virtual void add(TreeSum& sums) = 0;               // passes the running sum to sums.fold()
  virtual std::vector<at::Tensor> take_sum() = 0;    // moves the running sum out of the model
  // Called when this process has added the gradients of all its microbatches. With
  // --reduce-gradients last, reduces the sums over ranks. Afterwards the gradients are means over
  // the microbatches of all ranks.
  virtual void end_microbatches() = 0;
  virtual std::vector<StateRange> ranges() = 0;  // the ranges that state() returns

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
  std::string offload_dir_;  // folder of files for earlier partial sums; empty: they stay in memory
};

}  // namespace fsdp
