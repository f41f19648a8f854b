#pragma once

#include <fsdp/module_of.h>
#include <torch/nn/modules/batchnorm.h>

#include <memory>

// A model that computes how similar two vectors are.

inline constexpr int64_t kFeatures = 16;

// The name of the class ends in "Block", so the default wrap policy makes each of the two towers a
// unit.
struct TowerBlock : fsdp::Module {
  TowerBlock() {
    in = register_module("in", torch::nn::Linear(kFeatures, 64));
    norm = register_module("norm", torch::nn::BatchNorm1d(64));
    out = register_module("out", torch::nn::Linear(64, 32));
  }
  // [rows, kFeatures] -> [rows, 32]
  torch::Tensor forward(torch::Tensor x) override { return out(norm(in(x)).relu()); }

  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

// [rows, kFeatures] twice -> [rows]
struct Net : fsdp::ModuleOf<at::Tensor(at::Tensor left, at::Tensor right)> {
  Net() {
    left = register_module("left", std::make_shared<TowerBlock>());
    right = register_module("right", std::make_shared<TowerBlock>());
    scale = register_parameter("scale", torch::ones({32}));
  }
  at::Tensor forward(at::Tensor one, at::Tensor other) override {
    return ((*left)(one) * (*right)(other)*scale).sum(1);
  }

  std::shared_ptr<TowerBlock> left, right;
  torch::Tensor scale;
};
