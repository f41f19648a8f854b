#include <memory/live_bytes.h>
#include <module_of.h>
#include <plan_step.h>
#include <sharded_optimizer.h>
#include <testing/multi_rank.h>

#include <common/expect_text.h>
#include <library/one_process.h>

#include <array>
#include <set>

// Tests plan_step(), which predicts the memory and the traffic of a training step.
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

std::shared_ptr<Net> small() {
  return std::make_shared<Net>();
}
std::shared_ptr<Net> large() {
  return std::make_shared<Net>(100'000);  // three parameters of 100,000 x 100,000 floats: 3 x 40 GB
}

// This test only shows that planning needs little memory. test_own_plan.cpp shows that the planned
// bytes equal the measured ones.
TEST(PlanStep, plan_step_predicts_a_step_of_1024_ranks_without_the_models_memory) {
  run_ranks(1, [](TestRank&) {
    PlanOptions options;
    options.world_size = 1024;
    const std::vector<at::Tensor> inputs{at::ones({1, 100'000}), at::ones({1, 100'000})};
    const auto plan = plan_step<Net>(large, loss, inputs, options);
    const auto padded = [](int64_t numel) { return 4 * round_up(numel, 1024 * kAlignment); };
    EXPECT_EQ(plan.peaks[1][MemoryClass::gathered],
              // The bytes of two unsharded blocks and of the root's parameter `scale`.
              2 * padded(10'000'000'000) + padded(100'000));
    EXPECT_CONTAINS(plan.unit, "block");
  });
}

// The values that a rank measures in the second step of a training.
struct MeasuredStep {
  std::array<LiveBytes, 2> peaks;  // [0]: peak in forward; [1]: peak in backward
  int64_t received_bytes{};
};

MeasuredStep measured_step(const std::shared_ptr<Communicator>& comm,
                           const std::vector<at::Tensor>& inputs) {
  torch::manual_seed(1);
  const auto net = small();
  const auto sharded = fully_shard(*net, comm);
  const auto optimizer = make_sharded_optimizer(sharded->units(), {{"", {}}}, comm);
  MeasuredStep measured;
  for (int step = 0; step < 2; ++step) {
    comm->take_log();
    live_bytes::enter(Phase::forward);
    const at::Tensor value = loss(*net, inputs);
    measured.peaks[0] = live_bytes::peak();
    live_bytes::enter(Phase::backward);
    value.backward();
    measured.peaks[1] = live_bytes::peak();
    live_bytes::enter(Phase::optimizer);
    optimizer->step();
    optimizer->zero_grad();
  }
  for (const Call& call : comm->take_log())
    measured.received_bytes += call.bytes;
  return measured;
}

MULTI_RANK_SUITE_ON(PlanStepOfReplicas, 2, 4);

// In PlanOptions, a shard size of 0 means that the model is sharded over all ranks.
MULTI_RANK_TEST(PlanStepOfReplicas, the_plan_of_each_shard_size_equals_what_a_training_measures) {
  // The numbers of bytes that the shards of a rank have, one number for each shard size. A shard
  // size is the number of ranks over which a replica of the model is sharded.
  std::set<int64_t> shards;
  for (int shard_size = 0; shard_size <= world_size(); ++shard_size) {
    const int size = shard_size == 0 ? world_size() : shard_size;
    if (world_size() % size != 0) continue;
    SCOPED_TRACE("shard size " + std::to_string(shard_size));
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      const std::vector<at::Tensor> inputs{at::ones({64, 32}), at::ones({64, 32})};
      const PlannedStep plan = plan_step<Net>(
          small, loss, inputs, {.world_size = rank.world_size(), .shard_size = shard_size});
      const MeasuredStep measured = measured_step(rank.hybrid(size), inputs);
      rank.observe("shards", plan.peaks[1][MemoryClass::shards]);
      if (rank.rank() > 0) return;
      for (size_t i = 0; i < 2; ++i)
        for (const auto cls : {MemoryClass::shards, MemoryClass::gathered, MemoryClass::gradients,
                               MemoryClass::sharded_gradients, MemoryClass::optimizer_state})
          EXPECT_EQ(plan.peaks[i + 1][cls], measured.peaks[i][cls])
              << to_string(cls) << (i == 0 ? " in forward" : " in backward");
      const int64_t loss_of_all =
          // The plan also counts the bytes of averaging the loss over ranks. The training of this
          // test does not average it.
          16 * (rank.world_size() - 1);
      EXPECT_EQ(plan.received_bytes, measured.received_bytes + loss_of_all)
          << "bytes that rank 0 receives";
    });
    shards.insert(run.at(0, "shards").get<int64_t>());
  }
  // There is one number for each of the shard sizes 1, 2 and, on four ranks, 4.
  EXPECT_EQ(shards.size(), world_size() == 2 ? 2U : 3U);
}

TEST(PlanStep, plan_step_throws_and_names_a_parameter_that_is_not_fp32) {
  run_ranks(1, [](TestRank&) {
    const auto in_bf16 = [] {
      const auto net = small();
      net->blocks[1]->to(at::kBFloat16);
      return net;
    };
    const std::vector<at::Tensor> inputs{at::ones({64, 32}), at::ones({64, 32})};
    EXPECT_CONTAINS(
        error_of<std::invalid_argument>([&] { plan_step<Net>(in_bf16, loss, inputs); }),
        "plan_step: parameter block1.weight is BFloat16, and only steps of fp32 parameters");
  });
}

TEST(PlanStep, plan_step_names_an_operator_that_has_no_meta_kernel) {
  run_ranks(1, [](TestRank&) {
    const auto unknown = [](Net& net, std::vector<at::Tensor> inputs) {
      return at::histc(net(inputs[0], inputs[1]).detach(), 5).sum() + loss(net, inputs);
    };
    const std::vector<at::Tensor> inputs{at::ones({64, 32}), at::ones({64, 32})};
    EXPECT_CONTAINS(error_of<std::runtime_error>([&] { plan_step<Net>(small, unknown, inputs); }),
                    "plan_step: aten::histc has no meta kernel");
  });
}

}  // namespace
}  // namespace fsdp
