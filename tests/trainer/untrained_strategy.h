#pragma once

#include <strategies/strategy.h>

#include <memory>
#include <utility>

namespace fsdp {

// Trains nothing, and has no parameters. Its loss is 1.
class UntrainedStrategy : public Strategy {
 public:
  explicit UntrainedStrategy(std::shared_ptr<Communicator> comm) : comm_(std::move(comm)) {
    layout_.world_size = comm_->world_size();
  }
  at::Tensor forward_backward(int64_t) override { return at::ones({1}); }
  at::Tensor evaluate(const PartValue&) override { return forward_backward(0); }
  double clip_grad_norm(double, double) override { return 1; }
  void step() override {}
  void skip_step() override {}
  void set_loss_scale(int64_t) override {}
  void full_parameters(const ParameterVisitor&) override {}
  ModelState state() override { return {}; }
  std::vector<Owned> owned() const override { return {}; }
  const ShardLayout& layout() const override { return layout_; }

 protected:
  std::shared_ptr<Communicator> comm_;

 private:
  ShardLayout layout_;
};

inline ShardLayout layout_of_nothing(const TrainConfig& config, const Workload&) {
  ShardLayout layout;
  layout.world_size = config.shards();
  return layout;
}

}  // namespace fsdp
