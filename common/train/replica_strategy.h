#pragma once

#include <train/replica.h>
#include <train/strategy.h>

#include <memory>
#include <vector>

namespace fsdp {

// What single and ddp have in common: everything but how they compute gradients.
class ReplicaStrategy : public Strategy {
 public:
  double clip_grad_norm(double max_norm, double norm_type) override;
  void step() override;
  ModelState state() override;
  const ShardLayout& layout() const override { return layout_; }

 protected:
  ReplicaStrategy(const TrainConfig& config, Workload workload, ShardLayout layout,
                  BucketSizes bucket_sizes);

  // From now on a gradient moves into its bucket as soon as it is complete: it is copied, or added
  // to what accumulate() has put there.
  void collect_in_buckets();

  // Computes these parts one after another. The sums of their gradients are in the buckets, which
  // are allocated through `comm` unless it is null. Returns the losses. Needs collect_in_buckets().
  std::vector<at::Tensor> accumulate(const std::vector<int>& parts, const Arrangement& sums,
                                     int64_t step, const Communicator* comm);
  void divide_gradients();  // by the number of parts

  Workload workload_;
  Arrangement arrangement_;
  ShardLayout layout_;  // fsdp's, of the same parameters
  std::shared_ptr<Module> model_;
  Replica replica_;  // of model_

 private:
  void collect(const Replica::Slot& slot, size_t index);
  void zero_what_was_not_used();

  bool first_{};                 // the part that is being computed begins a partial sum
  std::vector<bool> collected_;  // by slot, in this part's backward
};

}  // namespace fsdp
