#pragma once

#include <nn/gpt2.h>
#include <state/model_state.h>

#include <string>
#include <vector>

// How Hugging Face's transformers names and stores the parameters of GPT-2. It says
// transformer.NAME for our NAME. The weight of a linear layer in a block is [in, out] there (a
// Conv1D), and [out, in] here.
namespace fsdp {

inline const std::string kHuggingFacePrefix = "transformer.";
// GPT2 has one tensor under two names, and files have it under the first.
inline const std::string kEmbeddingName = "wte.weight", kHeadName = "lm_head.weight";

struct HuggingFaceTensor {
  std::string name;
  std::vector<int64_t> sizes;
  bool transposed;  // has the columns of our parameter as rows
};
HuggingFaceTensor hugging_face_tensor(const ModelState::Parameter& parameter);

// The parameters of a GPT2 of this size, without making one.
std::vector<ModelState::Parameter> gpt2_parameters(const GPT2Options& options);

}  // namespace fsdp
