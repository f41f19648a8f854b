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
    for (int i = 0; i < 8; ++i) {
      blocks.push_back(register_module(std::to_string(i), std::make_shared<LayerBlock>()));
    }
  }
  torch::Tensor forward(torch::Tensor x) override {
    for (const auto& block : blocks)
      x = (*block)(x);
    return x;
  }
  std::vector<std::shared_ptr<LayerBlock>> blocks;
};

int main() {
  return start(4, [](const RankContext& context) {
    torch::manual_seed(1);  // the same values on every rank
    const auto comm = Communicator::create(context);
    Net net;
    const auto sharded = fully_shard(net, comm);
    const auto optimizer = make_sharded_optimizer(sharded->units(), {{"", {.lr = 1e-3}}}, comm);
    for (int step = 0; step < 10; ++step) {
      const auto x = torch::randn({64, 256}).chunk(4)[context.rank];
      const auto loss = (net(x) - x.flip(1)).square().mean();
      loss.backward();
      optimizer->step();
      optimizer->zero_grad();
      if (context.rank == 0) std::printf("step %d: %f\n", step, loss.item<double>());
    }
    return 0;
  });
}
