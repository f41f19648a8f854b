#pragma once

#include <nn/module.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

// Small models of odd sizes, which no number of ranks divides.
namespace fsdp {

struct LayerBlock : Module {
  explicit LayerBlock(int64_t width = 7)
      : linear(register_module("linear", torch::nn::Linear(width, width))) {}
  at::Tensor forward(at::Tensor x) override {
    if (throws) throw std::domain_error("no such row");
    return x + linear(x).tanh();
  }
  at::Tensor forward_twice(const at::Tensor& x) { return linear(linear(x)); }  // no hook runs
  torch::nn::Linear linear;
  bool throws{};
};

// Buffers that a step leaves as they are, and a module that may be ignored.
struct BufferedBlock : LayerBlock {
  at::Tensor mean = register_buffer("mean", at::zeros({2}));
  at::Tensor count = register_buffer("count", at::zeros({}, at::kLong));
  std::shared_ptr<LayerBlock> rest = register_module("rest", std::make_shared<LayerBlock>());
};

// Blocks of one class in a row: b0, b1, ...
template <class Block>
struct RowOf : Module {
  template <class... Sizes>
  explicit RowOf(int count = 2, Sizes... of_block) {
    for (int i = 0; i < count; ++i)
      blocks.push_back(
          register_module("b" + std::to_string(i), std::make_shared<Block>(of_block...)));
  }
  at::Tensor forward(at::Tensor x) override {
    for (const auto& block : blocks)
      x = (*block)(x);
    return x;
  }
  std::vector<std::shared_ptr<Block>> blocks;
};

// The same with a scale that belongs to the root.
struct BlockNet : RowOf<LayerBlock> {
  explicit BlockNet(int layers = 3, int64_t width = 7)
      : RowOf(layers, width), scale(register_parameter("scale", at::randn({width}))) {}
  at::Tensor forward(at::Tensor x) override { return RowOf::forward(std::move(x)) * scale; }
  at::Tensor scale;
};

// A unit whose parameter another unit may have too.
struct ScaleBlock : Module {
  explicit ScaleBlock(const at::Tensor& value) : gain(register_parameter("gain", value)) {}
  at::Tensor forward(at::Tensor x) override { return x * gain; }
  at::Tensor gain;
};
struct SmallBlock : Module {
  at::Tensor forward(at::Tensor x) override { return x * pair[0] + pair[1]; }
  at::Tensor pair = register_parameter("pair", at::randn({2}));
};
struct QuietBlock : Module {
  at::Tensor forward(at::Tensor x) override { return x.tanh(); }
};

// A parameter of no dimension, an empty one, one that lies in another order, one that two units
// share, one of fewer elements than there are ranks, a buffer, and a unit without parameters. The
// third one lies in row-major order when it is sharded, so a matrix product of it may round
// otherwise.
struct TinyNet : Module {
  at::Tensor forward(at::Tensor x) override {
    x = (*quiet)((*small)((*block)((*first)(x))));
    return (*second)(x)*turned * number;
  }
  at::Tensor number = register_parameter("number", at::randn({}));
  at::Tensor none = register_parameter("none", at::zeros({0}));
  at::Tensor turned = register_parameter("turned", at::randn({7, 5}).t());
  std::shared_ptr<LayerBlock> block = register_module("block", std::make_shared<LayerBlock>());
  std::shared_ptr<SmallBlock> small = register_module("small", std::make_shared<SmallBlock>());
  std::shared_ptr<QuietBlock> quiet = register_module("quiet", std::make_shared<QuietBlock>());
  std::shared_ptr<ScaleBlock> first =
      register_module("first", std::make_shared<ScaleBlock>(at::randn({7})));
  std::shared_ptr<ScaleBlock> second =
      register_module("second", std::make_shared<ScaleBlock>(first->gain));
  at::Tensor steps = register_buffer("steps", at::tensor({3, 4}, at::kLong));
};

inline std::shared_ptr<BufferedBlock> buffered_block(uint64_t seed = 1) {
  torch::manual_seed(seed);
  return std::make_shared<BufferedBlock>();
}

inline std::shared_ptr<BlockNet> block_net(int layers = 3, uint64_t seed = 1) {
  torch::manual_seed(seed);
  return std::make_shared<BlockNet>(layers);
}

}  // namespace fsdp
