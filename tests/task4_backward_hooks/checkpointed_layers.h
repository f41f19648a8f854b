#pragma once

#include <nn/module.h>
#include <optim/shard_layout.h>
#include <testing/judge/cases.h>
#include <testing/test_rank.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// The modules of this file are used by the tests of activation checkpointing on one rank.
namespace fsdp {

constexpr int64_t kSide = 64;
// Number of bytes of an input or of an activation.
constexpr int64_t kActivation = kSide * kSide * 4;

inline at::Tensor random_input() {
  return at::randn({kSide, kSide}).set_requires_grad(true);
}

// x + dropout(tanh(x W1)) W2. Without checkpointing, a call keeps three activations besides its
// input: what tanh returns, dropout's mask, and what dropout returns.
struct LayerBlock : Module {
  LayerBlock()
      : first(register_parameter("first", at::randn({kSide, kSide}))),
        second(register_parameter("second", at::randn({kSide, kSide}))) {}

  at::Tensor forward(at::Tensor x) override {
    ++runs;
    if (begin) begin();
    const at::Tensor inside = at::dropout(at::linear(x, first).tanh(), 0.5, true);
    return end ? end(inside) : x + at::linear(inside, second);
  }

  at::Tensor first, second;  // [kSide, kSide], the weights W1 and W2
  int runs{};                // how often forward() was called
  // A function of the test that forward() calls at its beginning, if it is set.
  std::function<void()> begin;
  // A function of the test. If it is set, forward() calls it with dropout's output, and returns its
  // result.
  std::function<at::Tensor(at::Tensor)> end;
};

inline std::shared_ptr<LayerBlock> layer() {
  return std::make_shared<LayerBlock>();
}

inline std::shared_ptr<LayerBlock> layer_with_end(std::function<at::Tensor(at::Tensor)> end) {
  auto made = layer();
  made->end = std::move(end);
  return made;
}

// A module that calls the modules `parts` one after the other.
struct Chain : Module {
  using Parts = std::vector<std::shared_ptr<Module>>;
  explicit Chain(Parts modules) : parts(std::move(modules)) {
    for (size_t i = 0; i < parts.size(); ++i)
      register_module(std::to_string(i), parts[i]);
  }
  at::Tensor forward(at::Tensor x) override {
    for (const auto& part : parts)
      x = (*part)(x);
    return x;
  }
  // Returns how often forward() ran, in all LayerBlocks inside together.
  int runs() const {
    int sum = 0;
    for (const auto& module : modules())
      if (const auto* block = dynamic_cast<const LayerBlock*>(module.get())) sum += block->runs;
    return sum;
  }
  Parts parts;
};

inline std::shared_ptr<Chain> chain(Chain::Parts parts) {
  return std::make_shared<Chain>(std::move(parts));
}

inline std::shared_ptr<Chain> chain_of_layers(int layers) {
  Chain::Parts parts;
  for (int i = 0; i < layers; ++i)
    parts.push_back(layer());
  return chain(std::move(parts));
}

// Runs forward and backward of `model`. Observes the output, the gradients, and the random number
// that is drawn next.
inline void observe_results(TestRank& rank, Module& model, const at::Tensor& input) {
  torch::manual_seed(test_seed(9));
  const at::Tensor output = model(input);
  output.square().mean().backward();
  rank.observe("the output", output.detach());
  rank.observe("the gradient of the input", input.grad());
  for (const auto& [name, parameter] : distinct_parameters(model))
    rank.observe("the gradient of " + name, parameter.grad());
  rank.observe("the next random number", at::rand({1}));
}

}  // namespace fsdp
