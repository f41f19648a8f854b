#include <exchange/hugging_face_names.h>

namespace fsdp {
namespace {

const std::string kGPT2Prefix = "transformer.", kLlamaPrefix = "model.";

// The tensors so far, and how to add those of one more module.
struct Tensors {
  std::vector<HuggingFaceTensor> all;

  void add(const std::string& own, const std::string& theirs, const std::vector<int64_t>& weight,
           bool bias = false, Layout layout = Layout::same, int64_t head_rows = 0) {
    all.push_back({{own + ".weight", weight}, theirs + ".weight", layout, head_rows});
    if (layout == Layout::transposed) layout = Layout::same;
    if (bias) all.push_back({{own + ".bias", {weight[0]}}, theirs + ".bias", layout, head_rows});
  }
};

std::vector<HuggingFaceTensor> tensors_of(const GPT2Options& options) {
  const int64_t d = options.d_model, ff = options.d_ff;
  Tensors tensors;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& weight, bool bias,
                       Layout layout) {
    tensors.add(name, kGPT2Prefix + name, weight, bias, layout);
  };
  add("wte", {options.vocabulary, d}, false, Layout::same);
  add("wpe", {options.context, d}, false, Layout::same);
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string block = "h." + std::to_string(layer) + '.';
    add(block + "ln_1", {d}, true, Layout::same);
    add(block + "attn.c_attn", {3 * d, d}, true, Layout::transposed);
    add(block + "attn.c_proj", {d, d}, true, Layout::transposed);
    add(block + "ln_2", {d}, true, Layout::same);
    add(block + "mlp.c_fc", {ff, d}, true, Layout::transposed);
    add(block + "mlp.c_proj", {d, ff}, true, Layout::transposed);
  }
  add("ln_f", {d}, true, Layout::same);
  return tensors.all;
}

std::vector<HuggingFaceTensor> tensors_of(const TransformerLMOptions& options) {
  const int64_t d = options.d_model, ff = options.d_ff;
  const int64_t head = d / options.heads, kv = head * options.kv_heads;
  const bool bias = options.qkv_bias;
  Tensors tensors;
  tensors.add("token_embeddings", kLlamaPrefix + "embed_tokens", {options.vocabulary, d});
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string own = "layers." + std::to_string(layer) + '.';
    const std::string theirs = kLlamaPrefix + own;
    tensors.add(own + "attn.q_proj", theirs + "self_attn.q_proj", {d, d}, bias, Layout::halves,
                head);
    tensors.add(own + "attn.k_proj", theirs + "self_attn.k_proj", {kv, d}, bias, Layout::halves,
                head);
    tensors.add(own + "attn.v_proj", theirs + "self_attn.v_proj", {kv, d}, bias);
    tensors.add(own + "attn.output_proj", theirs + "self_attn.o_proj", {d, d});
    tensors.add(own + "ffn.w1", theirs + "mlp.gate_proj", {ff, d});
    tensors.add(own + "ffn.w2", theirs + "mlp.down_proj", {d, ff});
    tensors.add(own + "ffn.w3", theirs + "mlp.up_proj", {ff, d});
    tensors.add(own + "ln1", theirs + "input_layernorm", {d});
    tensors.add(own + "ln2", theirs + "post_attention_layernorm", {d});
  }
  tensors.add("ln_final", kLlamaPrefix + "norm", {d});
  if (!options.tied_head) tensors.add("lm_head", "lm_head", {options.vocabulary, d});
  return tensors.all;
}

}  // namespace

std::vector<int64_t> HuggingFaceTensor::sizes() const {
  std::vector<int64_t> sizes = own.sizes;
  if (layout == Layout::transposed) std::swap(sizes.at(0), sizes.at(1));
  return sizes;
}

at::Tensor HuggingFaceTensor::stored(const at::Tensor& own_values) const {
  if (layout == Layout::transposed) return own_values.t().contiguous();
  if (layout == Layout::same) return own_values;
  const auto pairs = own_values.unflatten(0, {-1, head_rows / 2, 2});
  return pairs.transpose(1, 2).reshape(own.sizes);
}

int64_t HuggingFaceTensor::row(int64_t own_row) const {
  const int64_t in_head = own_row % head_rows;
  return own_row - in_head + in_head / 2 + in_head % 2 * (head_rows / 2);
}

const std::string& prefix_of(const ModelShape& shape) {
  return std::holds_alternative<GPT2Options>(shape) ? kGPT2Prefix : kLlamaPrefix;
}

std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelShape& shape) {
  return std::visit([](const auto& options) { return tensors_of(options); }, shape);
}

std::vector<ModelState::Parameter> parameters_of(const std::vector<HuggingFaceTensor>& tensors) {
  std::vector<ModelState::Parameter> parameters;
  for (const HuggingFaceTensor& tensor : tensors)
    parameters.push_back(tensor.own);
  return parameters;
}

}  // namespace fsdp
