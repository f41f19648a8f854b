#include <module_of.h>
#include <plan_step.h>
#include <sharded_optimizer.h>
#include <testing/multi_rank.h>

#include <fully_shard.h>

#include <common/expect_text.h>

namespace fsdp {
namespace {

using TwoInputs = ModuleOf<at::Tensor(at::Tensor x, at::Tensor condition)>;

struct PlannedBlock : TwoInputs {
  explicit PlannedBlock(int64_t width)
      : weight(register_parameter("weight", at::randn({width, width}))) {}
  at::Tensor forward(at::Tensor x, at::Tensor condition) override {
    return x + (at::linear(x, weight) + condition).relu();
  }
  at::Tensor weight;  // [width, width]
};

struct Net : TwoInputs {
  explicit Net(int64_t width = 32) {
    for (int i = 0; i < 3; ++i)
      blocks.push_back(
          register_module("block" + std::to_string(i), std::make_shared<PlannedBlock>(width)));
    scale = register_parameter("scale", at::ones({width}));
  }
  at::Tensor forward(at::Tensor x, at::Tensor condition) override {
    for (const auto& block : blocks)
      x = (*block)(x, condition);
    return x * scale;
  }
  std::vector<std::shared_ptr<PlannedBlock>> blocks;
  at::Tensor scale;  // [width]
};

at::Tensor loss(Net& net, std::vector<at::Tensor> inputs) {
  return net(inputs[0], inputs[1]).square().mean();
}

PlannedStep planned(const PlanOptions& options) {
  const std::function<std::shared_ptr<Net>()> build = [] { return std::make_shared<Net>(); };
  return plan_step<Net>(build, loss, {at::ones({64, 32}), at::ones({64, 32})}, options);
}

MULTI_RANK_SUITE(PlanStep);

MULTI_RANK_TEST(PlanStep, says_what_a_step_of_ones_own_model_then_costs) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto& comm = rank.communicator();
    PlanOptions options;
    options.world_size = comm->world_size();
    options.optimizer.kind = OptimizerOptions::Kind::adamw;
    const PlannedStep plan = planned(options);
    const std::vector<at::Tensor> inputs{at::ones({64, 32}), at::ones({64, 32})};
    Net net;
    const auto sharded = fully_shard(net, comm);
    const auto optimizer =
        make_sharded_optimizer(sharded->units(), {{"", options.optimizer}}, comm);
    for (int step = 0; step < 2; ++step) {
      for (size_t phase = 0; phase < kPhases; ++phase)
        live_bytes::reset(static_cast<Phase>(phase));
      live_bytes::enter(Phase::forward);
      at::Tensor value = loss(net, inputs);
      live_bytes::enter(Phase::backward);
      value.backward(at::full_like(value, 1));
      live_bytes::enter(Phase::optimizer);
      optimizer->step();
      optimizer->zero_grad();
      live_bytes::enter(Phase::init);
    }
    std::string wrong;
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      const auto& expected = plan.peaks[static_cast<size_t>(phase)];
      for (const auto cls :
           {MemoryClass::shards, MemoryClass::gathered, MemoryClass::gradients,
            MemoryClass::sharded_gradients, MemoryClass::optimizer_state, MemoryClass::rest})
        if (live_bytes::peak(phase)[cls] != expected[cls])
          wrong += std::string(to_string(phase)) + " " + to_string(cls) + ": " +
                   std::to_string(live_bytes::peak(phase)[cls]) + ", planned " +
                   std::to_string(expected[cls]) + "; ";
    }
    if (rank.rank() == 0) rank.observe("wrong", wrong);
  });
  expect_on_rank(run, 0, "wrong", "");
}

TEST(PlannedModel, needs_neither_ranks_nor_the_memory_of_the_model) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    PlanOptions options;
    options.world_size = 1024;
    const std::function<std::shared_ptr<Net>()> build = [] {
      return std::make_shared<Net>(100'000);  // 3 x 40 GB
    };
    const auto plan =
        plan_step<Net>(build, loss, {at::ones({1, 100'000}), at::ones({1, 100'000})}, options);
    rank.observe("gathered", plan.peaks[1][MemoryClass::gathered]);
    rank.observe("unit", plan.unit);
  });
  const auto padded = [](int64_t numel) { return 4 * round_up(numel, 1024 * kAlignment); };
  EXPECT_EQ(run.at(0, "gathered"), 2 * padded(10'000'000'000) + padded(100'000));  // and the scale
  EXPECT_CONTAINS(run.at(0, "unit").get<std::string>(), "block");
}

TEST(PlannedModel, names_an_operator_that_the_meta_device_does_not_have) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const std::function<std::shared_ptr<Net>()> build = [] { return std::make_shared<Net>(); };
    const auto unknown = [](Net& net, std::vector<at::Tensor> inputs) {
      return at::histc(net(inputs[0], inputs[1]).detach(), 5).sum() + loss(net, inputs);
    };
    rank.observe("error", error_of<std::runtime_error>([&] {
                   plan_step<Net>(build, unknown, {at::ones({64, 32}), at::ones({64, 32})});
                 }));
  });
  EXPECT_CONTAINS(run.at(0, "error").get<std::string>(),
                  "plan_step: aten::histc has no meta kernel");
}

}  // namespace
}  // namespace fsdp
