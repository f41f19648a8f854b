#pragma once

#include <nn/module.h>
#include <nn/reads_in_calls.h>

#include <memory>
#include <vector>

namespace fsdp {

struct GPT2Options {
  int64_t vocabulary, context, d_model, layers, heads, d_ff;
  bool tied_head{true};  // whether lm_head.weight and wte.weight are one tensor
  double dropout{};      // probability, below 1; 0: no dropout
  bool operator==(const GPT2Options&) const = default;
};

// GPT-2: learned positions, LayerNorm before each sublayer, GELU (tanh), biases everywhere except
// in the head. Modules: wte; wpe; h.N.{ln_1, attn.{c_attn, c_proj}, ln_2, mlp.{c_fc, c_proj}};
// ln_f; lm_head. By default, wte.weight and lm_head.weight are two names of one tensor. The initial
// weights of embeddings and linear layers are normal with std 0.02, which is divided by sqrt(2
// layers) in both c_proj. While the model trains (is_training()), dropout is applied to the sum of
// the embeddings, to the weights of the attention, and to the two outputs that a block adds to the
// residual stream, as in the published model.
class GPT2 : public Module, public ReadsInCalls {
 public:
  explicit GPT2(const GPT2Options& options);
  // [B, T] int64 -> logits [B, T, vocabulary]
  torch::Tensor forward(torch::Tensor tokens) override;

 private:
  int64_t context_;
  double dropout_;
  std::shared_ptr<Module> wte_, wpe_, ln_f_, lm_head_;
  std::vector<std::shared_ptr<Module>> layers_;  // each a GPT2Block
};

}  // namespace fsdp
