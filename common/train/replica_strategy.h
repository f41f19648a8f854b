#pragma once

#include <train/replica.h>
#include <train/strategy.h>

#include <memory>

namespace fsdp {

// What single and ddp have in common: everything but how they compute gradients.
class ReplicaStrategy : public Strategy {
 public:
  double clip_grad_norm(double max_norm) override;
  void step() override;
  const ShardLayout& layout() const override { return layout_; }

 protected:
  ReplicaStrategy(const TrainConfig& config, Workload workload, ShardLayout layout,
                  BucketSizes bucket_sizes);
  void divide_gradients();  // by the number of parts

  Workload workload_;
  Arrangement arrangement_;
  ShardLayout layout_;  // fsdp's, of the same parameters
  std::shared_ptr<Module> model_;
  Replica replica_;  // of model_
};

}  // namespace fsdp
