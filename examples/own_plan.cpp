#include <fsdp/fsdp.h>

#include <cstdio>

using namespace fsdp;

struct LayerBlock : Module {  // a unit, because its name ends in "Block"
  LayerBlock() { linear = register_module("linear", torch::nn::Linear(256, 256)); }
  torch::Tensor forward(torch::Tensor x) override { return x + linear(x).relu(); }
  torch::nn::Linear linear{nullptr};
};

struct Net : Module {
  Net() {
    for (int i = 0; i < 8; ++i)
      blocks.push_back(register_module(std::to_string(i), std::make_shared<LayerBlock>()));
  }
  torch::Tensor forward(torch::Tensor x) override {
    for (const auto& block : blocks)
      x = (*block)(x);
    return x;
  }
  std::vector<std::shared_ptr<LayerBlock>> blocks;
};

torch::Tensor loss_of(Module& net, std::vector<torch::Tensor> inputs) {
  return net(inputs[0]).square().mean();
}

// Plans the second step of a training on four ranks, trains two steps, and prints the planned and
// the measured peak of the backward pass.
int main() {
  return start(4, [](const RankContext& context) {
    counting_allocator::install();  // must be called before the first tensor is allocated
    const std::vector<torch::Tensor> inputs{torch::ones({16, 256})};
    const PlannedStep plan = plan_step([] { return std::make_shared<Net>(); }, loss_of, inputs,
                                       {.world_size = 4, .optimizer = {.lr = 1e-3}});
    torch::manual_seed(1);  // every rank draws the same initial parameters
    const auto comm = Communicator::create(context);
    Net net;
    const auto sharded = fully_shard(net, comm);
    const auto optimizer = make_sharded_optimizer(sharded->units(), {{"", {.lr = 1e-3}}}, comm);
    for (int step = 0; step < 2; ++step) {
      const auto loss = loss_of(net, inputs);
      live_bytes::enter(Phase::backward);
      loss.backward();
      if (step == 1 && context.rank == 0) {
        const LiveBytes &planned = plan.peaks[static_cast<size_t>(Phase::backward)],
                        measured = live_bytes::peak();
        for (const auto cls : {MemoryClass::shards, MemoryClass::gathered, MemoryClass::gradients,
                               MemoryClass::optimizer_state, MemoryClass::other})
          std::printf("%-16s planned %9lld, measured %9lld bytes\n", to_string(cls),
                      static_cast<long long>(planned[cls]), static_cast<long long>(measured[cls]));
      }
      optimizer->step();
      optimizer->zero_grad();
    }
    return 0;
  });
}
