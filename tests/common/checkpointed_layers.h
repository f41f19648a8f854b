#pragma once

#include <nn/module.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// Modules whose activations are checkpointed.
namespace fsdp {

constexpr int64_t kRows = 64, kWidth = 64;
constexpr int64_t kBytes = kRows * kWidth * 4;  // of an input, and of each intermediate result

inline at::Tensor random_input() {
  return at::randn({kRows, kWidth}).set_requires_grad(true);
}

// x + dropout(tanh(x W1)) W2. Saves its input, tanh's result, the mask and what the mask leaves.
struct LayerBlock : Module {
  LayerBlock()
      : first(register_parameter("first", at::randn({kWidth, kWidth}))),
        second(register_parameter("second", at::randn({kWidth, kWidth}))) {}

  at::Tensor forward(at::Tensor x) override {
    ++begun;
    if (finish) return finish(at::dropout(at::linear(x, first).tanh(), 0.5, true));
    const at::Tensor y =
        x + at::linear(at::dropout(at::linear(x, first).tanh(), 0.5, true), second);
    ++ended;
    return y;
  }

  at::Tensor first, second;
  std::function<at::Tensor(at::Tensor)> finish;  // in place of what follows dropout
  int begun{}, ended{};                          // calls of forward()
};

// A module made of others.
struct Rows : Module {
  explicit Rows(std::vector<std::shared_ptr<Module>> modules) : parts(std::move(modules)) {
    for (size_t i = 0; i < parts.size(); ++i)
      register_module(std::to_string(i), parts[i]);
  }
  at::Tensor forward(at::Tensor x) override {
    for (const auto& part : parts)
      x = (*part)(x);
    return x;
  }
  std::vector<std::shared_ptr<Module>> parts;
};

struct RowsBlock : Rows {
  using Rows::Rows;
};

inline std::shared_ptr<LayerBlock> layer() {
  return std::make_shared<LayerBlock>();
}

inline std::shared_ptr<LayerBlock> layer_with(std::function<at::Tensor(at::Tensor)> finish) {
  auto block = layer();
  block->finish = std::move(finish);
  return block;
}

inline std::shared_ptr<Module> rows(std::vector<std::shared_ptr<Module>> parts) {
  return std::make_shared<Rows>(std::move(parts));
}

// Also where both are undefined.
inline bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.defined() == y.defined() && (!x.defined() || torch::equal(x, y));
  });
}

}  // namespace fsdp
