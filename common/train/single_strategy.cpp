#include <memory/live_bytes.h>
#include <nn/gradient_hook.h>
#include <nn/models.h>
#include <train/replica_strategy.h>

namespace fsdp {
namespace {

class SingleStrategy : public ReplicaStrategy {
 public:
  SingleStrategy(const TrainConfig& config, ShardLayout layout)
      : ReplicaStrategy(config, std::move(layout), kBucketOfEach),
        world_size_(config.world),
        device_(config.comm.device) {
    for (const auto& slot : replica_.slots()) {
      if (!slot.trainable) continue;
      register_post_accumulate_grad_hook(slot.parameter.tensor, [this, &slot] { collect(slot); });
    }
  }

  at::Tensor forward_backward(const Batch& global) override {
    live_bytes::enter(Phase::forward);
    double sum = 0;   // of the losses, on the CPU
    at::Tensor loss;  // [], their sum on CUDA, which is not read here
    for (rank_ = 0; rank_ < world_size_; ++rank_) {
      const Batch batch = global.part(rank_, world_size_).to(device_);
      if (rank_ > 0) live_bytes::enter(Phase::forward);
      at::Tensor value = language_model_loss(*model_, batch.inputs, batch.targets);
      live_bytes::enter(Phase::backward);
      if (rank_ == 0) replica_.allocate_gradients(nullptr);
      collected_.assign(replica_.bucket_numels().size(), false);
      value.backward();
      zero_what_was_not_used();
      if (value.is_cpu()) {
        sum += value.item<double>();
      } else {
        loss = loss.defined() ? loss.add_(value.detach()) : value.detach().to(at::kDouble);
      }
    }
    at::NoGradGuard no_grad;
    for (const auto& bucket : replica_.buckets())
      bucket.div_(world_size_);
    if (!loss.defined()) loss = at::full({}, sum, at::kDouble);
    return loss.div_(world_size_);
  }

  double evaluate(const Batch& global) override {
    at::NoGradGuard no_grad;
    live_bytes::enter(Phase::forward);
    double loss = 0;
    for (int rank = 0; rank < world_size_; ++rank) {
      const Batch batch = global.part(rank, world_size_).to(device_);
      loss += language_model_loss(*model_, batch.inputs, batch.targets).item<double>();
    }
    return loss / world_size_;
  }

  void full_parameters(const ParameterVisitor& visit) override { replica_.full_parameters(visit); }

 private:
  // A bucket holds one parameter here. The first rank's gradient is copied and the others' are
  // added: a sum in rank order, as the transports take it.
  void collect(const Replica::Slot& slot) {
    at::NoGradGuard no_grad;
    at::Tensor& gradient = slot.parameter.tensor.mutable_grad();
    const at::Tensor sum = replica_.gradient(slot);
    if (rank_ == 0) {
      sum.copy_(gradient);
    } else {
      sum.add_(gradient);
    }
    gradient.reset();
    collected_[slot.place.bucket] = true;
  }

  void zero_what_was_not_used() {
    at::NoGradGuard no_grad;
    for (size_t i = 0; rank_ == 0 && i < collected_.size(); ++i) {
      if (!collected_[i]) replica_.buckets()[i].zero_();
    }
  }

  int world_size_;
  c10::DeviceType device_;
  int rank_{};                   // the rank that is being played
  std::vector<bool> collected_;  // per bucket, in this rank's backward
};

}  // namespace

std::unique_ptr<Strategy> make_single_strategy(const TrainConfig& config, ShardLayout layout) {
  return std::make_unique<SingleStrategy>(config, std::move(layout));
}

}  // namespace fsdp
