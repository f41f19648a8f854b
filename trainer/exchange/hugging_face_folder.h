#pragma once

#include <comm/communicator.h>
#include <exchange/hugging_face_names.h>
#include <state/model_state.h>
#include <state/safetensors.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// A folder with config.json and model.safetensors, as save_pretrained() of transformers writes it
// and as we export it. In place of the latter there may be model.safetensors.index.json and the
// files that it names. Names may lack prefix_of() the model. Buffers are not read. It holds no
// values: read() reads them.
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
