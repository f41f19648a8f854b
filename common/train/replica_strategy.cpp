#include <memory/live_bytes.h>
#include <train/build_model.h>
#include <train/replica_strategy.h>

namespace fsdp {

ReplicaStrategy::ReplicaStrategy(const TrainConfig& config, ShardLayout layout,
                                 BucketSizes bucket_sizes)
    : model_(build_model(config)), replica_(*model_, config, std::move(layout), bucket_sizes) {
  move_buffers(*model_, config.comm.device);
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
