#include <strategies/replica_strategy.h>

#include <numeric>

namespace fsdp {
namespace {

class SingleStrategy : public ReplicaStrategy {
 public:
  SingleStrategy(const TrainConfig& config, Workload workload, ShardLayout layout)
      : ReplicaStrategy(config, std::move(workload), std::move(layout), kBucketOfEach),
        parts_(static_cast<size_t>(arrangement_.parts())) {
    std::iota(parts_.begin(), parts_.end(), 0);
    collect_in_buckets();
  }

  at::Tensor compute_gradients(int64_t step) override {
    const auto losses = accumulate(parts_, arrangement_, step, nullptr);
    divide_gradients();
    return sum_of(losses);
  }

  at::Tensor compute_values(const PartValue& value) override {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> values;
    for (const int part : parts_)
      values.push_back(value(*model_, part, arrangement_.parts()));
    return sum_of(values);
  }

  void full_parameters(const ParameterVisitor& visit) override { replica_.full_parameters(visit); }

 private:
  // [1] Losses are no gradients: they are added over all ranks at once.
  at::Tensor sum_of(const std::vector<at::Tensor>& losses) const {
    Arrangement all = arrangement_;
    all.shards = all.ranks();
    all.replicas = 1;
    return sum_of_losses(losses, all);
  }

  std::vector<int> parts_;  // of all ranks, in the order in which they are added
};

}  // namespace

std::unique_ptr<Strategy> make_single_strategy(const TrainConfig& config, Workload workload,
                                               ShardLayout layout) {
  return std::make_unique<SingleStrategy>(config, std::move(workload), std::move(layout));
}

}  // namespace fsdp
