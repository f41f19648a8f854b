#pragma once

#include <nn/model_shape.h>
#include <state/model_state.h>

#include <string>
#include <vector>

// How Hugging Face's transformers names and stores the parameters of our models.
namespace fsdp {

// What names begin with; files may lack it.
const std::string& prefix_of(const ModelShape& shape);
// A tied head is another name of the first parameter, which alone is in files.
inline const std::string kHeadName = "lm_head.weight";

// How the elements of a parameter lie in a file.
enum class Layout {
  same,
  transposed,  // a Conv1D of GPT-2: [in, out] there, [out, in] here
  halves       // rows of heads: we rotate rows 2i and 2i + 1 of a head, they i and i + size / 2
};

// A parameter of ours, and their tensor.
struct HuggingFaceTensor {
  ModelState::Parameter own;
  std::string name;
  Layout layout;
  int64_t head_rows;  // of Layout::halves

  std::vector<int64_t> sizes() const;
  // Ours, which is whole, as they store it.
  at::Tensor stored(const at::Tensor& own) const;
  // Where their tensor has our row. For Layout::halves.
  int64_t row(int64_t own) const;
};

// All parameters of a model of this shape, in their order, without making one.
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelShape& shape);
std::vector<ModelState::Parameter> parameters_of(const std::vector<HuggingFaceTensor>& tensors);

}  // namespace fsdp
