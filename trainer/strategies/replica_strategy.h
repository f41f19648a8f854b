#pragma once

#include <strategies/offload.h>
#include <strategies/replica.h>
#include <strategies/strategy.h>

#include <memory>
#include <vector>

namespace fsdp {

// What single and ddp have in common: everything but how they compute gradients.
class ReplicaStrategy : public Strategy {
 public:
  // After a step, or after a checkpoint was loaded, the parameters are not rounded yet.
  at::Tensor forward_backward(int64_t step) final;
  at::Tensor evaluate(const PartValue& value) final;
  double clip_grad_norm(double max_norm, double norm_type) override;
  void step() override;
  void skip_step() override;
  void set_loss_scale(int64_t scale) override { loss_scale_ = scale; }
  ModelState state() override;
  std::vector<Owned> owned() const override;
  const ShardLayout& layout() const override { return layout_; }

 protected:
  ReplicaStrategy(const TrainConfig& config, Workload workload, ShardLayout layout,
                  BucketSizes bucket_sizes);

  // What forward_backward() and evaluate() do then.
  virtual at::Tensor compute_gradients(int64_t step) = 0;
  virtual at::Tensor compute_values(const PartValue& value) = 0;

  // From now on a gradient moves into its bucket as soon as it is complete: it is copied, or added
  // to what accumulate() has put there.
  void collect_in_buckets();

  // Computes these parts one after another. The sums of their gradients are in the buckets, which
  // are allocated through `comm` unless it is null. Returns the losses. Needs collect_in_buckets().
  std::vector<at::Tensor> accumulate(const std::vector<int>& parts, const Arrangement& sums,
                                     int64_t step, const Communicator* comm);
  // compute_parts() with this backward, which leaves the sums in the buckets.
  using Backward = std::function<void(const at::Tensor& loss, bool begins)>;
  std::vector<at::Tensor> compute(const std::vector<int>& parts, const Arrangement& sums,
                                  int64_t step, const Backward& backward, bool apart = false);
  void divide_gradients();  // by the number of parts, and by what the loss was multiplied with

  Workload workload_;
  Arrangement arrangement_;
  ShardLayout layout_;  // fsdp's, of the same parameters
  std::shared_ptr<Module> model_;
  Replica replica_;  // of model_
  int64_t loss_scale_{1};

 private:
  std::string offload_dir_;  // empty: all lies in memory
  void collect(const Replica::Slot& slot, size_t index);
  void zero_what_was_not_used();

  bool first_{};                 // the part that is being computed begins a partial sum
  std::vector<bool> collected_;  // by slot, in this part's backward
};

}  // namespace fsdp
