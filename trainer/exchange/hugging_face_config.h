#pragma once

#include <nn/model_shape.h>
#include <state/folder_kind.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// The file config.json of a folder that Hugging Face's transformers reads and writes. It has the
// type and the sizes of a model, and other settings that change what the model computes.
namespace fsdp {

// The kinds of Hugging Face models that this program reads, in words for messages and the help.
inline const std::string kHuggingFaceModels = "GPT-2, Llama, Qwen2, Qwen3 or Mistral";

// Returns the config.json of our model of this shape. In it, dropout is 0 even if the shape has
// dropout, and the token that begins a text is null, because our models have none. `ends`: the ids
// of the tokens at which a text ends; empty: not known, which the config.json shows as null.
nlohmann::ordered_json hugging_face_config(const ModelShape& shape,
                                           const std::vector<int64_t>& ends = {});

// Reads config.json in `folder` and returns the shape of the model. If a member is missing, uses
// the default of transformers. Throws std::runtime_error, which names the file and the member,
// unless the model is of a kind in kHuggingFaceModels and computes what our models compute.
ModelShape read_hugging_face_config(const std::string& folder);

// Compares the shape `file`, which a Hugging Face folder has, with `own`, the shape of the model
// named `model`. Returns the first size that differs, "n_layer 12, and gpt2-tiny has 3"; "" if the
// shapes are equal.
std::string difference_of_shapes(const ModelShape& file, const std::string& model,
                                 const ModelShape& own);

}  // namespace fsdp
