#include <nn/gpt2.h>
#include <nn/layers.h>

#include <cmath>
#include <stdexcept>
#include <string>

namespace fsdp {
namespace {

constexpr double kStd = 0.02;

std::shared_ptr<Linear> make_linear(int64_t in, int64_t out, double std = kStd) {
  return std::make_shared<Linear>(torch::empty({out, in}).normal_(0, std), torch::zeros({out}));
}

// Makes a layer whose output is added to the residual stream. The stream is the sum of 2 *
// options.layers such outputs, so the std of the layer's initial weight is divided by sqrt(2 *
// options.layers).
std::shared_ptr<Linear> make_residual_linear(int64_t in, int64_t out, const GPT2Options& options) {
  return make_linear(in, out, kStd / std::sqrt(2.0 * static_cast<double>(options.layers)));
}

// Applies dropout to `x` if `module` is in training mode; else returns `x`.
at::Tensor dropped_out(const at::Tensor& x, double fraction, const Module& module) {
  return fraction > 0 && module.is_training() ? at::dropout(x, fraction, /*train=*/true) : x;
}

class LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t width)
      : weight_(register_parameter("weight", torch::ones({width}))),
        bias_(register_parameter("bias", torch::zeros({width}))) {}

  torch::Tensor forward(torch::Tensor x) override {
    const auto dtype = weight_.scalar_type();  // layer norm computes in the weight's dtype
    return at::layer_norm(x.to(dtype), weight_.sizes(), weight_, bias_.to(dtype))
        .to(x.scalar_type());
  }

 private:
  torch::Tensor weight_;  // [width]
  torch::Tensor bias_;    // [width]
};

// Without a namespace of its own, this CausalAttention would clash with TransformerLM's class of
// the same name in a unity build.
namespace gpt2_parts {

class CausalAttention : public Module {
 public:
  explicit CausalAttention(const GPT2Options& options)
      : heads_(options.heads), dropout_(options.dropout) {
    const int64_t d = options.d_model;
    c_attn_ = register_module("c_attn", make_linear(d, 3 * d));
    c_proj_ = register_module("c_proj", make_residual_linear(d, d, options));
  }

  torch::Tensor forward(torch::Tensor x) override {
    // [B, T, 3 d_model] -> query, key and value, each [B, heads, T, d_head]
    const auto qkv = (*c_attn_)(x).unflatten(-1, {3, heads_, -1}).transpose(1, 3).unbind(2);
    const auto mixed =
        at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, is_training() ? dropout_ : 0.0,
                                         /*is_causal=*/true);
    return (*c_proj_)(mixed.transpose(1, 2).flatten(2));
  }

 private:
  int64_t heads_;
  double dropout_;
  std::shared_ptr<Module> c_attn_, c_proj_;
};

}  // namespace gpt2_parts

class MLP : public Module {
 public:
  explicit MLP(const GPT2Options& options) {
    c_fc_ = register_module("c_fc", make_linear(options.d_model, options.d_ff));
    c_proj_ =
        register_module("c_proj", make_residual_linear(options.d_ff, options.d_model, options));
  }

  torch::Tensor forward(torch::Tensor x) override {
    return (*c_proj_)(at::gelu((*c_fc_)(x), "tanh"));
  }

 private:
  std::shared_ptr<Module> c_fc_, c_proj_;
};

}  // namespace

// Computes x += dropout(attn(ln_1(x))); x += dropout(mlp(ln_2(x))). [B, T, d_model] -> [B, T,
// d_model]. The class GPT2Block is not in the unnamed namespace, because unit policies select
// modules by the name of their class.
class GPT2Block : public Module {
 public:
  explicit GPT2Block(const GPT2Options& options) : dropout_(options.dropout) {
    ln_1_ = register_module("ln_1", std::make_shared<LayerNorm>(options.d_model));
    attn_ = register_module("attn", std::make_shared<gpt2_parts::CausalAttention>(options));
    ln_2_ = register_module("ln_2", std::make_shared<LayerNorm>(options.d_model));
    mlp_ = register_module("mlp", std::make_shared<MLP>(options));
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = x + dropped_out((*attn_)((*ln_1_)(x)), dropout_, *this);
    return x + dropped_out((*mlp_)((*ln_2_)(x)), dropout_, *this);
  }

 private:
  double dropout_;
  std::shared_ptr<Module> ln_1_, attn_, ln_2_, mlp_;
};

GPT2::GPT2(const GPT2Options& options) : context_(options.context), dropout_(options.dropout) {
  const auto draw = [&](int64_t rows) {
    return torch::empty({rows, options.d_model}).normal_(0, kStd);
  };
  const auto wte = std::make_shared<Embedding>(draw(options.vocabulary));
  wte_ = register_module("wte", wte);
  wpe_ = register_module("wpe", std::make_shared<Embedding>(draw(options.context)));
  auto list = register_module("h", std::make_shared<torch::nn::ModuleListImpl>());
  for (int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back(std::make_shared<GPT2Block>(options));
    list->push_back(layers_.back());
  }
  ln_f_ = register_module("ln_f", std::make_shared<LayerNorm>(options.d_model));
  lm_head_ = register_module(
      "lm_head",
      std::make_shared<Linear>(options.tied_head ? wte->weight() : draw(options.vocabulary)));
}

torch::Tensor GPT2::forward(torch::Tensor tokens) {
  const int64_t length = tokens.size(1);
  if (length > context_) {
    throw std::invalid_argument("GPT2: a sequence of " + std::to_string(length) +
                                " tokens is longer than the context, " + std::to_string(context_));
  }
  // A statement for each call makes their order the same with every compiler.
  auto x = (*wpe_)(torch::arange(length, tokens.options()));
  x = (*wte_)(tokens) + x;
  x = dropped_out(x, dropout_, *this);
  for (const auto& layer : layers_)
    x = (*layer)(x);
  return (*lm_head_)((*ln_f_)(x));
}

}  // namespace fsdp
