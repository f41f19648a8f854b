#include <memory/live_bytes.h>
#include <train/build_model.h>
#include <train/replica_strategy.h>

namespace fsdp {

ReplicaStrategy::ReplicaStrategy(const TrainConfig& config, Workload workload, ShardLayout layout,
                                 BucketSizes bucket_sizes)
    : workload_(std::move(workload)),
      arrangement_(config.arrangement()),
      layout_(std::move(layout)),
      model_(workload_.build()),
      replica_(*model_, config, bucket_sizes) {
  layout_.check(distinct_parameters(*model_));
  move_buffers(*model_, config.comm.device);
}

void ReplicaStrategy::divide_gradients() {
  const at::NoGradGuard no_grad;
  for (const auto& bucket : replica_.buckets())
    bucket.div_(arrangement_.parts());
}

double ReplicaStrategy::clip_grad_norm(double max_norm) {
  live_bytes::enter(Phase::optimizer);
  return replica_.clip_grad_norm(max_norm);
}

void ReplicaStrategy::step() {
  live_bytes::enter(Phase::optimizer);
  replica_.step();
}

}  // namespace fsdp
