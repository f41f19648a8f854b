#pragma once

#include <config/batch_partition.h>
#include <strategies/strategy.h>
#include <strategies/workload.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// What the strategies have in common: a process computes its parts of the batch one after another,
// and adds up their gradients as the arrangement says.
class MicrobatchStrategy : public Strategy {
 public:
  at::Tensor forward_backward(int64_t step) final;
  at::Tensor evaluate(const MicrobatchValue& value) final;
  void set_loss_scale(int64_t scale) override { loss_scale_ = scale; }
  ModelState state() final;
  const ShardLayout& layout() const final { return layout_; }

 protected:
  // `rank` computes its own parts; none: this process computes those of all ranks.
  MicrobatchStrategy(const TrainConfig& config, Workload workload, std::optional<int> rank);

  virtual void begin() {}          // of forward_backward() and of evaluate()
  virtual void begin_forward() {}  // of a part
  // Adds the gradients of `loss` to the running sum, or begins a new sum with them.
  virtual void compute_gradients(const at::Tensor& loss, bool begins) = 0;
  virtual bool adds_apart() const { return false; }  // each part begins a new sum
  virtual void add(TreeSum& sums) = 0;               // calls added() for the running sum
  virtual std::vector<at::Tensor> take_sum() = 0;    // the running sum, to be put aside
  // The gradients of all parts have been added. Makes them means over all ranks' parts.
  virtual void end_microbatches() = 0;
  virtual std::vector<StateRange> ranges() = 0;  // of state()

  Workload workload_;
  BatchPartition partition_;
  std::vector<int> microbatches_;  // of this process, in the order of its turns
  int64_t loss_scale_{1};
  std::shared_ptr<Module> model_;
  ShardLayout layout_;

 private:
  at::Tensor sum_of(const std::vector<at::Tensor>& losses) const;

  bool plays_all_ranks_;
  std::string offload_dir_;  // empty: sums wait in memory
};

}  // namespace fsdp
