#include <comm/tree_sum.h>
#include <memory/live_bytes.h>
#include <nn/gradient_hook.h>
#include <train/replica_strategy.h>

namespace fsdp {
namespace {

class SingleStrategy : public ReplicaStrategy {
 public:
  SingleStrategy(const TrainConfig& config, Workload workload, ShardLayout layout)
      : ReplicaStrategy(config, std::move(workload), std::move(layout), kBucketOfEach) {
    for (const auto& slot : replica_.slots()) {
      if (!slot.trainable) continue;
      register_post_accumulate_grad_hook(slot.parameter.tensor, [this, &slot] { collect(slot); });
    }
  }

  at::Tensor forward_backward(int64_t step) override {
    TreeSum gradients(arrangement_);
    std::vector<at::Tensor> losses;
    for (int part = 0; part < arrangement_.parts(); ++part) {
      live_bytes::enter(Phase::forward);
      const at::Tensor loss = workload_.loss(*model_, part, arrangement_.parts(), step);
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
    divide_gradients();
    return mean_of(losses);
  }

  at::Tensor evaluate(int64_t step) override {
    at::NoGradGuard no_grad;
    std::vector<at::Tensor> losses;
    for (int part = 0; part < arrangement_.parts(); ++part) {
      live_bytes::enter(Phase::forward);
      const at::Tensor loss = workload_.loss(*model_, part, arrangement_.parts(), step);
      losses.push_back(loss.to(at::kDouble));
    }
    return mean_of(losses);
  }

  void full_parameters(const ParameterVisitor& visit) override { replica_.full_parameters(visit); }

 private:
  // [1] Losses are no gradients: they are added over all ranks at once.
  at::Tensor mean_of(const std::vector<at::Tensor>& losses) const {
    TreeSum sum({.shards = arrangement_.ranks(), .turns = arrangement_.turns});
    at::Tensor running = losses[0];
    for (int part = 0; part < arrangement_.parts(); ++part) {
      if (part > 0) sum.put_aside({running});
      running = losses[static_cast<size_t>(part)];
      sum.added({running});
    }
    return running.div(arrangement_.parts()).reshape({1});
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

  bool first_{};                 // the part that is being computed begins a partial sum
  std::vector<bool> collected_;  // per bucket, in this part's backward
};

}  // namespace

std::unique_ptr<Strategy> make_single_strategy(const TrainConfig& config, Workload workload,
                                               ShardLayout layout) {
  return std::make_unique<SingleStrategy>(config, std::move(workload), std::move(layout));
}

}  // namespace fsdp
