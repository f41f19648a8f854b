#pragma once

#include <nn/module.h>
#include <nn/reads_in_calls.h>

#include <memory>
#include <vector>

namespace fsdp {

struct TransformerLMOptions {
  int64_t vocabulary, context, d_model, layers, heads, d_ff;
  double rope_theta{10000.0};
  // The number of heads of keys and values. Each of them serves heads / kv_heads query heads.
  int64_t kv_heads{heads};
  double norm_eps{1e-5};
  bool qkv_bias{};     // whether q_proj, k_proj and v_proj have biases, as in Qwen2
  bool tied_head{};    // whether lm_head.weight and token_embeddings.weight are one tensor
  int64_t head_dim{};  // width of a head; 0: d_model / heads
  bool qk_norm{};      // whether each head of q and of k has an RMSNorm, as in Qwen3
  // How Llama 3.1 scales the frequencies of the rotary positions: frequencies with a wavelength
  // above rope_context / rope_low positions are divided by rope_factor, those with a wavelength
  // below rope_context / rope_high do not change, and between them the scaling changes gradually.
  // If rope_factor is 1, no frequency changes.
  double rope_factor{1}, rope_low{1}, rope_high{4};
  int64_t rope_context{};

  int64_t width_of_head() const { return head_dim > 0 ? head_dim : d_model / heads; }
  bool operator==(const TransformerLMOptions&) const = default;
};

// The language model of CS336's basics: RMSNorm before each sublayer, rotary positions, SwiGLU, by
// default no biases and an untied head. With other options it is a Llama. Modules are made, and
// their values drawn, in this order: token_embeddings; layers.N.{attn.{q_proj, k_proj, v_proj,
// output_proj}, ffn.{w1, w2, w3}, ln1, ln2}; ln_final; lm_head. The rotary cache is one buffer
// shared by the layers.
class TransformerLM : public Module, public ReadsInCalls {
 public:
  explicit TransformerLM(const TransformerLMOptions& options);
  // [B, T] int64 -> logits [B, T, vocabulary]
  torch::Tensor forward(torch::Tensor tokens) override;

 private:
  int64_t context_;
  std::shared_ptr<Module> token_embeddings_, ln_final_, lm_head_;
  std::vector<std::shared_ptr<Module>> layers_;  // each a TransformerBlock
};

}  // namespace fsdp
