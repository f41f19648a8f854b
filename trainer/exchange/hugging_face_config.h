#pragma once

#include <nn/model_shape.h>

#include <nlohmann/json.hpp>
#include <string>

// config.json of a folder that Hugging Face's transformers reads and writes: the size of a model,
// and which of its variants it is.
namespace fsdp {

inline const std::string kConfigFile = "config.json";

// Of our model, which has neither dropout nor tokens that begin or end a text.
nlohmann::ordered_json hugging_face_config(const ModelShape& shape);

// Throws std::runtime_error, which names the file and the member, unless it is a GPT-2, a Llama, a
// Qwen2 or a Mistral that computes what our models compute. A member that is missing has the value
// that transformers gives it.
ModelShape read_hugging_face_config(const std::string& folder);

// The first size in which they differ: "n_layer 12, and gpt2-tiny has 3"; empty if none does.
std::string difference_of_shapes(const ModelShape& file, const std::string& model,
                                 const ModelShape& own);

}  // namespace fsdp
