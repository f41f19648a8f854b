#include <config/arrangement.h>
#include <memory/live_bytes.h>
#include <nn/gradient_hook.h>
#include <strategies/replica_strategy.h>
#include <torch/csrc/autograd/engine.h>

namespace fsdp {
namespace {

class DdpStrategy : public ReplicaStrategy {
 public:
  DdpStrategy(const TrainConfig& config, Workload workload, ShardLayout layout,
              std::shared_ptr<Communicator> comm)
      : ReplicaStrategy(config, std::move(workload), std::move(layout), kDdpBuckets),
        comm_(std::move(comm)),
        collected_(replica_.slots().size()),
        waiting_(replica_.bucket_numels().size()) {
    if (arrangement_.turns_first) {
      collect_in_buckets();
      return;
    }
    for (size_t i = 0; i < replica_.slots().size(); ++i) {
      const auto& slot = replica_.slots()[i];
      if (!slot.trainable) continue;
      register_post_accumulate_grad_hook(slot.parameter.tensor, [this, i] { collect(i); });
    }
  }

  at::Tensor compute_gradients(int64_t step) override {
    const auto losses = arrangement_.turns_first ? reduce_last(step) : reduce_each(step);
    divide_gradients();
    return sums_of_losses(losses, arrangement_);
  }

  at::Tensor compute_values(const PartValue& value) override {
    return values_without_gradients(*model_, value, arrangement_, comm_->rank());
  }

  void full_parameters(const ParameterVisitor& visit) override {
    if (comm_->rank() == 0) replica_.full_parameters(visit);
  }

 private:
  std::vector<at::Tensor> reduce_last(int64_t step) {
    auto losses = accumulate(parts_of(arrangement_, comm_->rank()), {.turns = arrangement_.turns},
                             step, comm_.get());
    reductions_.clear();
    reduce_all_buckets();
    return losses;
  }

  std::vector<at::Tensor> reduce_each(int64_t step) {
    const auto backward_and_reduce = [&](const at::Tensor& loss, bool) {
      begin_backward();
      backward(loss, loss_scale_);
      end_backward();
    };
    return compute(parts_of(arrangement_, comm_->rank()), {.turns = arrangement_.turns}, step,
                   backward_and_reduce, /*apart=*/true);
  }

  void begin_backward() {
    replica_.allocate_gradients(comm_.get());
    collected_.assign(collected_.size(), false);
    waiting_.assign(waiting_.size(), 0);
    for (const auto& slot : replica_.slots())
      waiting_[slot.place.bucket] += slot.trainable;
    reductions_.clear();
  }

  void collect(size_t index) {
    at::NoGradGuard no_grad;
    const auto& slot = replica_.slots()[index];
    at::Tensor& gradient = slot.parameter.tensor.mutable_grad();
    replica_.gradient(slot).copy_(slot.as_sent(gradient));
    gradient.reset();
    collected_[index] = true;
    --waiting_[slot.place.bucket];
    // Buckets go out in their order, whatever order they fill in: it is the same on every rank.
    while (reductions_.size() < waiting_.size() && waiting_[reductions_.size()] == 0) {
      reduce_next_bucket();
    }
  }

  void reduce_next_bucket() {
    const size_t bucket = reductions_.size();
    reductions_.push_back(
        comm_->all_reduce(replica_.buckets()[bucket], "bucket." + std::to_string(bucket)));
  }

  void end_backward() {
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < collected_.size(); ++i) {
      const auto& slot = replica_.slots()[i];
      if (slot.trainable && !collected_[i]) replica_.gradient(slot).zero_();
    }
    reduce_all_buckets();
  }

  void reduce_all_buckets() {
    while (reductions_.size() < waiting_.size())
      reduce_next_bucket();
    for (Handle& reduction : reductions_)
      reduction.wait();
  }

  std::shared_ptr<Communicator> comm_;
  std::vector<bool> collected_;     // per parameter, in this backward
  std::vector<int64_t> waiting_;    // per bucket: parameters without a gradient yet
  std::vector<Handle> reductions_;  // of the first buckets, under way
};

}  // namespace

std::unique_ptr<Strategy> make_ddp_strategy(const TrainConfig& config, Workload workload,
                                            ShardLayout layout,
                                            std::shared_ptr<Communicator> comm) {
  return std::make_unique<DdpStrategy>(config, std::move(workload), std::move(layout),
                                       std::move(comm));
}

}  // namespace fsdp
