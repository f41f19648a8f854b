#pragma once

#include <nn/module.h>

#include <memory>
#include <vector>

namespace fsdp {

struct TransformerLMOptions {
  int64_t vocabulary, context, d_model, layers, heads, d_ff;
  double rope_theta{10000.0};
};

class TransformerBlock;

// The language model of CS336's basics: RMSNorm before each sublayer, rotary positions, SwiGLU, no
// biases, an untied head. Modules are made in this order, which is the order of their random draws:
// token_embeddings; layers.N.{attn.{q_proj, k_proj, v_proj, output_proj}, ffn.{w1, w2, w3}, ln1, ln2};
// ln_final; lm_head. The rotary cache is one buffer shared by the layers.
class TransformerLM : public Module {
 public:
  explicit TransformerLM(const TransformerLMOptions& options);
  torch::Tensor forward(torch::Tensor tokens) override;  // [B, T] int64 -> logits [B, T, vocabulary]
  const std::vector<std::shared_ptr<TransformerBlock>>& layers() const { return layers_; }

 private:
  std::vector<std::shared_ptr<TransformerBlock>> layers_;
  // further modules in the implementation's choice of members
};

}  // namespace fsdp
