#pragma once

#include <nn/module.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

// Small models. Most have the width 7, which no number of ranks above 1 in the tests divides.
namespace fsdp {

struct LayerBlock : Module {
  explicit LayerBlock(int64_t width = 7)
      : linear(register_module("linear", torch::nn::Linear(width, width))) {}
  at::Tensor forward(at::Tensor x) override {
    if (throws) throw std::domain_error("no such row");
    return x + linear(x).tanh();
  }
  // Calls the linear layer of this block twice, but not the block, so no hook of the block runs.
  at::Tensor forward_twice(const at::Tensor& x) { return linear(linear(x)); }
  torch::nn::Linear linear;
  bool throws{};
};

// A block with buffers that no forward changes, and with a module `rest` that a test can make an
// ignored module.
struct BufferedBlock : LayerBlock {
  at::Tensor mean = register_buffer("mean", at::zeros({2}));
  at::Tensor count = register_buffer("count", at::zeros({}, at::kLong));
  std::shared_ptr<LayerBlock> rest = register_module("rest", std::make_shared<LayerBlock>());
};

// A model that calls blocks of one class, which have the names b0, b1, ..., one after another.
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

// A row of LayerBlocks, and a scale that belongs to the root.
struct BlockNet : RowOf<LayerBlock> {
  explicit BlockNet(int layers = 3, int64_t width = 7)
      : RowOf(layers, width), scale(register_parameter("scale", at::randn({width}))) {}
  at::Tensor forward(at::Tensor x) override { return RowOf::forward(std::move(x)) * scale; }
  at::Tensor scale;
};

// A block whose parameter another block can share.
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

// A model with unusual tensors:
// - `number` has no dimension;
// - `none` has no elements;
// - `turned` is transposed in memory. The shards have it in row-major order, so a
//   matrix product with it could round differently;
// - `small` has fewer elements than there are ranks;
// - `quiet` is a unit without parameters;
// - `first` and `second` share a parameter;
// - `steps` is a buffer.
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
