#pragma once

#include <comm/communicator.h>
#include <nn/model_shape.h>
#include <state/model_state.h>
#include <state/safetensors.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// How Hugging Face's transformers names and stores the parameters of our models.

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

// A folder with config.json and model.safetensors, as save_pretrained() of transformers writes it
// and as we export it. In place of the latter there may be model.safetensors.index.json and the
// files that it names. Names may lack the prefix of the model, as "transformer.". Buffers are not
// read. It holds no values: read() reads them.
class HuggingFaceFolder {
 public:
  // Compares the headers of the files with config.json: names, shapes and dtypes (F32, F16, BF16).
  // Throws std::runtime_error, which names the file and the tensor. Runs no torch operator.
  explicit HuggingFaceFolder(const std::string& folder);
  HuggingFaceFolder(const HuggingFaceFolder&) = delete;

  const ModelShape& shape() const { return shape_; }
  // Of our model of this shape.
  std::vector<ModelState::Parameter> parameters() const { return parameters_of(tensors_); }

  // If the head is tied and the folder has one, throws unless it equals the embedding: in every
  // `parts`-th piece of them, from `part` on.
  void check_head(int part, int parts) const;

  // Fills the range's values. Reads the elements of the range, and of a transposed tensor the
  // columns that have one.
  void read(const StateRange& range) const;

 private:
  struct Source {
    std::string name;  // in the file
    const HuggingFaceTensor* tensor;
    const SafetensorsReader* file;
    const SafetensorsReader::Entry* entry;

    at::Tensor read(int64_t begin, int64_t end) const;  // elements of our parameter
    at::Tensor read_columns(int64_t begin, int64_t end) const;
  };
  void add(const Source& source, bool head);

  ModelShape shape_;
  std::vector<HuggingFaceTensor> tensors_;
  std::map<std::string, std::unique_ptr<SafetensorsReader>> files_;  // by name
  std::map<std::string, Source> sources_;                            // by our name
};

// Fills the values of this rank's ranges. All ranks call it together. Throws std::runtime_error on
// every rank before it changes a value: what HuggingFaceFolder throws, or if the model has other
// parameters.
void load_hugging_face(const std::string& folder, const ModelState& state, Communicator& comm);

}  // namespace fsdp
