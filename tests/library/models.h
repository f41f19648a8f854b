#pragma once

#include <nn/module.h>

#include <memory>
#include <string>
#include <vector>

// Small models of odd sizes, which no number of ranks divides.
namespace fsdp {

struct LayerBlock : Module {
  explicit LayerBlock(int64_t width = 7)
      : linear(register_module("linear", torch::nn::Linear(width, width))) {}
  at::Tensor forward(at::Tensor x) override { return x + linear(x).tanh(); }
  at::Tensor forward_twice(const at::Tensor& x) { return linear(linear(x)); }  // no hook runs
  torch::nn::Linear linear;
};

// Blocks b0, b1, ..., and a scale that belongs to the root.
struct BlockNet : Module {
  explicit BlockNet(int layers = 3, int64_t width = 7) {
    for (int i = 0; i < layers; ++i)
      blocks.push_back(
          register_module("b" + std::to_string(i), std::make_shared<LayerBlock>(width)));
    scale = register_parameter("scale", at::randn({width}));
  }
  at::Tensor forward(at::Tensor x) override {
    for (const auto& block : blocks)
      x = (*block)(x);
    return x * scale;
  }
  std::vector<std::shared_ptr<LayerBlock>> blocks;
  at::Tensor scale;
};

inline std::shared_ptr<BlockNet> block_net(int layers = 3, uint64_t seed = 1) {
  torch::manual_seed(seed);
  return std::make_shared<BlockNet>(layers);
}

}  // namespace fsdp
