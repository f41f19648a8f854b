#include <config/arrangement.h>
#include <memory/live_bytes.h>
#include <nn/gradient_hook.h>
#include <strategies/build_model.h>
#include <strategies/offload.h>
#include <strategies/replica_strategy.h>

namespace fsdp {

ReplicaStrategy::ReplicaStrategy(const TrainConfig& config, Workload workload, ShardLayout layout,
                                 BucketSizes bucket_sizes)
    : workload_(std::move(workload)),
      arrangement_(config.arrangement()),
      layout_(std::move(layout)),
      model_(workload_.build()),
      replica_(*model_, with_state_file(config, layout_, 0), bucket_sizes),
      offload_dir_(config.offload_dir) {
  layout_.check(distinct_parameters(*model_));
  move_buffers(*model_, config.comm.device);
}

at::Tensor ReplicaStrategy::forward_backward(int64_t step) {
  replica_.round_parameters();
  return compute_gradients(step);
}

at::Tensor ReplicaStrategy::evaluate(const PartValue& value) {
  replica_.round_parameters();
  return compute_values(value);
}

void ReplicaStrategy::collect_in_buckets() {
  for (size_t i = 0; i < replica_.slots().size(); ++i) {
    const Replica::Slot& slot = replica_.slots()[i];
    if (!slot.trainable) continue;
    register_post_accumulate_grad_hook(slot.parameter.tensor,
                                       [this, &slot, i] { collect(slot, i); });
  }
}

void ReplicaStrategy::collect(const Replica::Slot& slot, size_t index) {
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = slot.parameter.tensor.mutable_grad();
  const at::Tensor sum = replica_.gradient(slot);
  if (first_) {
    sum.copy_(slot.as_sent(gradient));
  } else {
    sum.add_(slot.as_sent(gradient));
  }
  gradient.reset();
  collected_[index] = true;
}

void ReplicaStrategy::zero_what_was_not_used() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; first_ && i < collected_.size(); ++i) {
    const Replica::Slot& slot = replica_.slots()[i];
    if (slot.trainable && !collected_[i]) replica_.gradient(slot).zero_();
  }
}

std::vector<at::Tensor> ReplicaStrategy::accumulate(const std::vector<int>& parts,
                                                    const Arrangement& sums, int64_t step,
                                                    const Communicator* comm) {
  return compute(parts, sums, step, [&](const at::Tensor& loss, bool begins) {
    first_ = begins;
    if (first_) replica_.allocate_gradients(comm);
    collected_.assign(replica_.slots().size(), false);
    backward(loss, loss_scale_);
    zero_what_was_not_used();
  });
}

std::vector<at::Tensor> ReplicaStrategy::compute(const std::vector<int>& parts,
                                                 const Arrangement& sums, int64_t step,
                                                 const Backward& backward, bool apart) {
  return compute_parts(
      parts, sums,
      {.loss = [&](int part) { return workload_.loss(*model_, part, arrangement_.parts(), step); },
       .backward = backward,
       .add = [&](TreeSum& gradients) { gradients.added(replica_.buckets()); },
       .leave = [&] { return put_aside(replica_.take_buckets(), offload_dir_); },
       .apart = apart});
}

void ReplicaStrategy::divide_gradients() {
  const at::NoGradGuard no_grad;
  for (const auto& bucket : replica_.buckets())
    bucket.div_(arrangement_.parts() * loss_scale_);
}

double ReplicaStrategy::clip_grad_norm(double max_norm, double norm_type) {
  live_bytes::enter(Phase::optimizer);
  return replica_.clip_grad_norm(max_norm, norm_type);
}

void ReplicaStrategy::step() {
  live_bytes::enter(Phase::optimizer);
  replica_.step();
}

void ReplicaStrategy::skip_step() {
  live_bytes::enter(Phase::optimizer);
  replica_.skip_step();
}

std::vector<Strategy::Owned> ReplicaStrategy::owned() const {
  std::vector<Owned> all;
  for (const Replica::Slot& slot : replica_.slots()) {
    const bool has_gradient = slot.trainable && !replica_.buckets().empty();
    all.push_back({slot.parameter.name, 0, slot.padded.narrow(0, 0, slot.parameter.tensor.numel()),
                   has_gradient ? replica_.gradient(slot).flatten() : at::Tensor()});
  }
  return all;
}

ModelState ReplicaStrategy::state() {
  ModelState state = state_without_ranges(distinct_parameters(*model_));
  state.ranges = replica_.state();
  return state;
}

}  // namespace fsdp
