#include <comm/tree_sum.h>
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
        arrangement_{config.world, 1},
        device_(config.comm.device) {
    for (const auto& slot : replica_.slots()) {
      if (!slot.trainable) continue;
      register_post_accumulate_grad_hook(slot.parameter.tensor, [this, &slot] { collect(slot); });
    }
  }

  at::Tensor forward_backward(const Batch& global) override {
    TreeSum gradients(arrangement_);
    std::vector<at::Tensor> losses;
    for (int part = 0; part < arrangement_.parts(); ++part) {
      live_bytes::enter(Phase::forward);
      const at::Tensor loss = loss_of(global, part);
      live_bytes::enter(Phase::backward);
      first_ = part == 0 || gradients.puts_aside();
      if (part > 0 && first_) gradients.put_aside(replica_.buckets());
      if (first_) replica_.allocate_gradients(nullptr);
      collected_.assign(replica_.bucket_numels().size(), false);
      loss.backward();
      zero_what_was_not_used();
      gradients.added(replica_.buckets());
      losses.push_back(loss.detach().to(at::kDouble));
    }
    at::NoGradGuard no_grad;
    for (const auto& bucket : replica_.buckets())
      bucket.div_(arrangement_.parts());
    return mean_of(losses);
  }

  double evaluate(const Batch& global) override {
    at::NoGradGuard no_grad;
    std::vector<at::Tensor> losses;
    for (int part = 0; part < arrangement_.parts(); ++part) {
      live_bytes::enter(Phase::forward);
      losses.push_back(loss_of(global, part).to(at::kDouble));
    }
    return mean_of(losses).item<double>();
  }

  void full_parameters(const ParameterVisitor& visit) override { replica_.full_parameters(visit); }

 private:
  at::Tensor loss_of(const Batch& global, int part) {
    const Batch batch = global.part(part, arrangement_.parts()).to(device_);
    return language_model_loss(*model_, batch.inputs, batch.targets);
  }

  at::Tensor mean_of(std::vector<at::Tensor>& losses) const {
    TreeSum sum(arrangement_);
    at::Tensor running = losses[0];
    for (int part = 0; part < arrangement_.parts(); ++part) {
      if (part > 0) sum.put_aside({running});
      running = losses[static_cast<size_t>(part)];
      sum.added({running});
    }
    return running.div_(arrangement_.parts());
  }

  // A bucket holds one parameter here. The first gradient of a partial sum is copied, the others
  // are added.
  void collect(const Replica::Slot& slot) {
    at::NoGradGuard no_grad;
    at::Tensor& gradient = slot.parameter.tensor.mutable_grad();
    const at::Tensor sum = replica_.gradient(slot);
    if (first_) {
      sum.copy_(gradient);
    } else {
      sum.add_(gradient);
    }
    gradient.reset();
    collected_[slot.place.bucket] = true;
  }

  void zero_what_was_not_used() {
    at::NoGradGuard no_grad;
    for (size_t i = 0; first_ && i < collected_.size(); ++i) {
      if (!collected_[i]) replica_.buckets()[i].zero_();
    }
  }

  Arrangement arrangement_;
  c10::DeviceType device_;
  bool first_{};                 // the part that is being computed begins a partial sum
  std::vector<bool> collected_;  // per bucket, in this part's backward
};

}  // namespace

std::unique_ptr<Strategy> make_single_strategy(const TrainConfig& config, ShardLayout layout) {
  return std::make_unique<SingleStrategy>(config, std::move(layout));
}

}  // namespace fsdp
