#include <fully_shard.h>
#include <memory/live_bytes.h>
#include <meta_init.h>
#include <sharded_optimizer.h>
#include <strategy/fsdp_strategy.h>
#include <train/build_model.h>

namespace fsdp {
namespace {

class FsdpStrategy : public Strategy {
 public:
  FsdpStrategy(const TrainConfig& config, std::shared_ptr<Communicator> comm)
      : comm_(std::move(comm)) {
    FullyShardOptions options;
    options.wrap = parse_wrap_policy(config.wrap);
    options.reshard_after_forward = config.reshard_after_forward;
    options.limit = config.prefetch ? config.limit : 1;
    if (config.meta_init) {
      const DeferredInit init([&] { model_ = build_model(config); });
      options.materialize = [&](const at::Tensor& p) { return init.materialize_tensor(p); };
      sharded_ = fully_shard(*model_, comm_, options);
      init.materialize_module(*model_);  // what is left: the buffers
    } else {
      model_ = build_model(config);
      sharded_ = fully_shard(*model_, comm_, options);
    }
    move_buffers(*model_, comm_->device());
    optimizer_ =
        std::make_unique<ShardedOptimizer>(sharded_->units(), config.parameter_groups(), comm_);
  }

  at::Tensor forward_backward(const Batch& global) override {
    const at::Tensor loss = local_loss(*model_, global, *comm_);
    live_bytes::enter(Phase::backward);
    loss.backward();
    return loss.detach();
  }

  double evaluate(const Batch& global) override {
    at::NoGradGuard no_grad;
    return local_loss(*model_, global, *comm_).item<double>();
  }

  double clip_grad_norm(double max_norm) override {
    live_bytes::enter(Phase::optimizer);
    return optimizer_->clip_grad_norm(max_norm);
  }

  void step() override {
    live_bytes::enter(Phase::optimizer);
    optimizer_->step();
    optimizer_->zero_grad();
  }

  void full_parameters(const ParameterVisitor& visit) override { sharded_->full_parameters(visit); }
  const ShardLayout& layout() const override { return sharded_->layout(); }

 private:
  std::shared_ptr<Communicator> comm_;
  std::shared_ptr<Module> model_;
  std::shared_ptr<FullySharded> sharded_;
  std::unique_ptr<ShardedOptimizer> optimizer_;
};

}  // namespace

std::unique_ptr<Strategy> make_fsdp_strategy(const TrainConfig& config,
                                             std::shared_ptr<Communicator> comm) {
  return std::make_unique<FsdpStrategy>(config, std::move(comm));
}

ShardLayout shard_layout(const TrainConfig& config) {
  std::shared_ptr<Module> model;
  construct_on_meta([&] { model = build_model(config); });
  const auto plan = plan_units(*model, parse_wrap_policy(config.wrap));
  return plan_layout(*model, plan, config.world);
}

}  // namespace fsdp
