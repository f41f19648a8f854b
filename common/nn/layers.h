#pragma once

#include <nn/lora.h>
#include <nn/module.h>

namespace fsdp {

// The layers of TransformerLM and GPT2. Unlike torch::nn's layers they draw no random numbers: a
// layer takes its initial weight, so all random draws are made by the model.

// Computes x W^T + b: [..., in] -> [..., out], in the dtype of W.
class Linear : public Module, public Adaptable {
 public:
  explicit Linear(const at::Tensor& weight, const at::Tensor& bias = {});
  torch::Tensor forward(torch::Tensor x) override;

 private:
  torch::nn::Module& layer() override { return *this; }
  torch::Tensor& weight_to_adapt() override { return weight_; }

  torch::Tensor weight_;  // [out, in], may be tied
  torch::Tensor bias_;    // [out], or undefined
};

// Looks up rows of its weight: ids [...] int64 -> [..., width].
class Embedding : public Module {
 public:
  explicit Embedding(const at::Tensor& weight);
  torch::Tensor forward(torch::Tensor ids) override;
  bool reads_parameters_in_backward() const override { return false; }
  const torch::Tensor& weight() const { return weight_; }

 private:
  torch::Tensor weight_;  // [rows, width], may be tied
};

// Returns normal values with mean 0, cut at three standard deviations, with the same draws as
// PyTorch's trunc_normal_.
at::Tensor truncated_normal(at::IntArrayRef sizes, double std);

}  // namespace fsdp
