#pragma once

#include <nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <memory>

// Tells how much alike two vectors are.

inline constexpr int64_t kFeatures = 16;

// Its class name ends in "Block", so each of the two towers is a unit.
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

// A module takes one tensor, so its two inputs are stacked: [2, rows, kFeatures] -> [rows].
struct Net : fsdp::Module {
  Net() {
    left = register_module("left", std::make_shared<TowerBlock>());
    right = register_module("right", std::make_shared<TowerBlock>());
    scale = register_parameter("scale", torch::ones({32}));
  }
  torch::Tensor forward(torch::Tensor pair) override {
    return ((*left)(pair[0]) * (*right)(pair[1]) * scale).sum(1);
  }

  std::shared_ptr<TowerBlock> left, right;
  torch::Tensor scale;
};
