#include <exchange/gpt2_names.h>

namespace fsdp {

HuggingFaceTensor hugging_face_tensor(const ModelState::Parameter& parameter) {
  HuggingFaceTensor tensor{kHuggingFacePrefix + parameter.name, parameter.sizes, false};
  for (const char* linear : {".c_attn.weight", ".c_fc.weight", ".c_proj.weight"})
    tensor.transposed = tensor.transposed || parameter.name.ends_with(linear);
  if (tensor.transposed) std::swap(tensor.sizes.at(0), tensor.sizes.at(1));
  return tensor;
}

std::vector<ModelState::Parameter> gpt2_parameters(const GPT2Options& options) {
  const int64_t d = options.d_model, ff = options.d_ff;
  std::vector<ModelState::Parameter> parameters{{kEmbeddingName, {options.vocabulary, d}},
                                                {"wpe.weight", {options.context, d}}};
  const auto add = [&](const std::string& module, const std::vector<int64_t>& weight) {
    parameters.push_back({module + ".weight", weight});
    parameters.push_back({module + ".bias", {weight[0]}});
  };
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string block = "h." + std::to_string(layer) + '.';
    add(block + "ln_1", {d});
    add(block + "attn.c_attn", {3 * d, d});
    add(block + "attn.c_proj", {d, d});
    add(block + "ln_2", {d});
    add(block + "mlp.c_fc", {ff, d});
    add(block + "mlp.c_proj", {d, ff});
  }
  add("ln_f", {d});
  return parameters;
}

}  // namespace fsdp
