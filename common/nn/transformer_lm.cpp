#include <nn/layers.h>
#include <nn/transformer_lm.h>

#include <torch/csrc/autograd/custom_function.h>
#include <cmath>
#include <stdexcept>
#include <string>

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor draw_weight(int64_t in, int64_t out) {
  return truncated_normal({out, in}, std::sqrt(2.0 / static_cast<double>(in + out)));
}

std::shared_ptr<Linear> make_truncated_linear(int64_t in, int64_t out, bool bias = false) {
  return std::make_shared<Linear>(draw_weight(in, out), bias ? torch::zeros({out}) : at::Tensor());
}

class RMSNorm : public Module {
 public:
  RMSNorm(int64_t width, double eps)
      : weight_(register_parameter("weight", torch::ones({width}))), eps_(eps) {}

  torch::Tensor forward(torch::Tensor x) override {
    return at::rms_norm(x.to(at::kFloat), weight_.sizes(), weight_.to(at::kFloat), eps_)
        .to(x.scalar_type());
  }

 private:
  torch::Tensor weight_;  // [width]
  double eps_;
};

// Returns the frequencies of the rotary positions, scaled as in Llama 3.1 if options.rope_factor is
// not 1.
at::Tensor scaled(const at::Tensor& frequency, const TransformerLMOptions& options) {
  if (options.rope_factor == 1) return frequency;
  const auto waves = frequency * (static_cast<double>(options.rope_context) / (2 * M_PI));
  const auto share =
      ((waves - options.rope_low) / (options.rope_high - options.rope_low)).clamp(0, 1);
  return frequency * (share + (1 - share) / options.rope_factor);
}

// Returns cos and sin of position * frequency: [2, context, d_head / 2]. Frequency number i is
// theta^(-2i / d_head), changed by scaled().
at::Tensor make_rotary_cache(const TransformerLMOptions& options) {
  const int64_t d_head = options.width_of_head();
  const auto exponents = -torch::arange(0, d_head, 2, torch::kFloat) / d_head;
  const auto frequency = scaled(torch::pow(options.rope_theta, exponents), options);
  const auto angle = torch::outer(torch::arange(options.context, torch::kFloat), frequency);
  return torch::stack({angle.cos(), angle.sin()});
}

// Rotates each pair (x[2i], x[2i+1]) by the angle of its position and i. The result holds all first
// components, then all second ones. x: [B, T, heads, d_head]. Rotate has its own backward, because
// the gradients of the single operators would keep and allocate several tensors of x's size instead
// of one.
struct Rotate : torch::autograd::Function<Rotate> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& rotary) {
    context->save_for_backward({rotary});
    auto result = at::empty(x.sizes(), x.options());
    const auto halves = result.chunk(2, -1);
    turn(evens_and_odds(x), halves, cosine(rotary, x), sine(rotary, x));
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto& gradient = gradients[0];
    const auto rotary = context->get_saved_variables()[0];
    auto result = at::empty(gradient.sizes(), gradient.options());
    turn(gradient.chunk(2, -1), evens_and_odds(result), cosine(rotary, gradient),
         -sine(rotary, gradient));
    return {result, torch::Tensor()};
  }

 private:
  static std::vector<at::Tensor> evens_and_odds(const at::Tensor& x) {
    return x.unflatten(-1, {-1, 2}).unbind(-1);
  }
  static at::Tensor cosine(const at::Tensor& rotary, const at::Tensor& like) {
    return rotary[0].narrow(0, 0, like.size(1)).unsqueeze(1).to(like.scalar_type());
  }
  static at::Tensor sine(const at::Tensor& rotary, const at::Tensor& like) {
    return rotary[1].narrow(0, 0, like.size(1)).unsqueeze(1).to(like.scalar_type());
  }
  static void turn(const std::vector<at::Tensor>& from, std::vector<at::Tensor> to,
                   const at::Tensor& cos, const at::Tensor& sin) {
    at::mul_out(to[0], from[0], cos).addcmul_(from[1], sin, -1);
    at::mul_out(to[1], from[1], cos).addcmul_(from[0], sin);
  }
};

class CausalAttention : public Module {
 public:
  CausalAttention(const TransformerLMOptions& options, const at::Tensor& rotary)
      : heads_(options.heads), kv_heads_(options.kv_heads), rotary_(rotary) {
    const int64_t d = options.d_model, width = options.width_of_head();
    const int64_t inner = width * heads_, kv = width * kv_heads_;
    q_proj_ = register_module("q_proj", make_truncated_linear(d, inner, options.qkv_bias));
    k_proj_ = register_module("k_proj", make_truncated_linear(d, kv, options.qkv_bias));
    v_proj_ = register_module("v_proj", make_truncated_linear(d, kv, options.qkv_bias));
    output_proj_ = register_module("output_proj", make_truncated_linear(inner, d));
    if (!options.qk_norm) return;
    q_norm_ = register_module("q_norm", std::make_shared<RMSNorm>(width, options.norm_eps));
    k_norm_ = register_module("k_norm", std::make_shared<RMSNorm>(width, options.norm_eps));
  }

  torch::Tensor forward(torch::Tensor x) override {
    const auto split = [](const at::Tensor& y, int64_t heads) {
      return y.unflatten(-1, {heads, -1});
    };
    const auto normalized = [](const std::shared_ptr<Module>& norm, const at::Tensor& y) {
      return norm ? (*norm)(y) : y;
    };
    const auto q = rotated(normalized(q_norm_, split((*q_proj_)(x), heads_)));
    const auto k = rotated(normalized(k_norm_, split((*k_proj_)(x), kv_heads_)));
    const auto v = split((*v_proj_)(x), kv_heads_).transpose(1, 2);
    const auto mixed = at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true,
                                                        /*scale=*/{}, kv_heads_ < heads_);
    return (*output_proj_)(mixed.transpose(1, 2).flatten(2));
  }

 private:
  // [B, T, heads, d_head] -> [B, heads, T, d_head]
  at::Tensor rotated(const at::Tensor& x) const {
    return Rotate::apply(x, rotary_).transpose(1, 2);
  }

  int64_t heads_, kv_heads_;
  torch::Tensor rotary_;  // [2, context, d_head / 2], shared with the model
  std::shared_ptr<Module> q_proj_, k_proj_, v_proj_, output_proj_;
  std::shared_ptr<Module> q_norm_, k_norm_;  // RMSNorms; null if options.qk_norm is false
};

class SwiGLU : public Module {
 public:
  SwiGLU(int64_t d_model, int64_t d_ff) {
    w1_ = register_module("w1", make_truncated_linear(d_model, d_ff));
    w2_ = register_module("w2", make_truncated_linear(d_ff, d_model));
    w3_ = register_module("w3", make_truncated_linear(d_model, d_ff));
  }

  torch::Tensor forward(torch::Tensor x) override {
    // Each call has a statement of its own, because in one expression the compiler would choose
    // their order, and with it the order in which backward adds the gradients of x.
    const auto up = (*w3_)(x);
    return (*w2_)(at::silu((*w1_)(x)) * up);
  }

 private:
  std::shared_ptr<Module> w1_, w2_, w3_;
};

}  // namespace

// Computes x += attn(ln1(x)); x += ffn(ln2(x)). [B, T, d_model] -> [B, T, d_model]. `rotary` is the
// model's cache of rotary positions, which all blocks share.
class TransformerBlock : public Module {
 public:
  TransformerBlock(const TransformerLMOptions& options, const at::Tensor& rotary) {
    attn_ = register_module("attn", std::make_shared<CausalAttention>(options, rotary));
    ffn_ = register_module("ffn", std::make_shared<SwiGLU>(options.d_model, options.d_ff));
    ln1_ = register_module("ln1", std::make_shared<RMSNorm>(options.d_model, options.norm_eps));
    ln2_ = register_module("ln2", std::make_shared<RMSNorm>(options.d_model, options.norm_eps));
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = x + (*attn_)((*ln1_)(x));
    return x + (*ffn_)((*ln2_)(x));
  }

 private:
  std::shared_ptr<Module> attn_, ffn_, ln1_, ln2_;
};

TransformerLM::TransformerLM(const TransformerLMOptions& options) : context_(options.context) {
  const int64_t d = options.d_model, vocabulary = options.vocabulary;
  const auto embedding = std::make_shared<Embedding>(
      options.tied_head ? draw_weight(d, vocabulary)
                        : truncated_normal({vocabulary, d}, /*std=*/1.0));
  token_embeddings_ = register_module("token_embeddings", embedding);
  const auto rotary = register_buffer("rotary", make_rotary_cache(options));
  auto list = register_module("layers", std::make_shared<torch::nn::ModuleListImpl>());
  for (int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back(std::make_shared<TransformerBlock>(options, rotary));
    list->push_back(layers_.back());
  }
  ln_final_ = register_module("ln_final", std::make_shared<RMSNorm>(d, options.norm_eps));
  lm_head_ =
      register_module("lm_head", options.tied_head ? std::make_shared<Linear>(embedding->weight())
                                                   : make_truncated_linear(d, vocabulary));
}

torch::Tensor TransformerLM::forward(torch::Tensor tokens) {
  if (tokens.size(1) > context_) {
    throw std::invalid_argument("TransformerLM: a sequence of " + std::to_string(tokens.size(1)) +
                                " tokens is longer than the context, " + std::to_string(context_));
  }
  auto x = (*token_embeddings_)(tokens);
  for (const auto& layer : layers_)
    x = (*layer)(x);
  return (*lm_head_)((*ln_final_)(x));
}

}  // namespace fsdp
