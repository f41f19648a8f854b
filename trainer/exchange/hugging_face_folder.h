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

// This file describes how Hugging Face's transformers names and stores the parameters of our
// models.

// How the order of a parameter's elements in a Hugging Face file differs from the order in our
// model.
enum class Layout {
  same,
  transposed,  // weight of a Conv1D of GPT-2: [in, out] in the file, [out, in] in our model
  // The rows of each head are in another order. A rotary position rotates rows 2i and 2i + 1 of a
  // head in our model, and rows i and i + head_rows / 2 in the file.
  halves
};

// A parameter of our model, and the tensor that stores it in a Hugging Face file.
struct HuggingFaceTensor {
  ModelState::Parameter own;
  std::string name;  // name of the tensor in the file
  Layout layout;
  int64_t head_rows;  // for Layout::halves: number of rows of a head

  std::vector<int64_t> sizes() const;  // sizes of the tensor in the file
  // Returns the values to write to the file. `own`: the values of our whole parameter.
  at::Tensor stored(const at::Tensor& own) const;
  // For Layout::halves: returns the row of the tensor in the file that has row `own` of our
  // parameter.
  int64_t row(int64_t own) const;
};

// Returns the Hugging Face tensors of our model of this shape: one for each parameter, in the order
// of the parameters. Does not build the model.
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelShape& shape);
// Returns the names of the linear layers, which compute x W^T, of our model of this shape, in the
// order of their parameters. These are the layers that can have LoRA adapters. The head is one of
// them unless it is tied to the embedding: an adapter of a tied head could not be merged.
std::vector<std::string> linear_layers(const ModelShape& shape);
std::vector<ModelState::Parameter> parameters_of(const std::vector<HuggingFaceTensor>& tensors);

// A folder with config.json and model.safetensors, as save_pretrained() of transformers and ./fsdp
// export write it.
// - model.safetensors may be replaced by model.safetensors.index.json and the files that it names.
// - Names of tensors in the files may lack the prefix of the model, such as "transformer.".
// - Buffers in the files are ignored.
// - This object holds no values: read() reads them.
class HuggingFaceFolder {
 public:
  // Compares the headers of the files with config.json: names, shapes and dtypes (F32, F16 or
  // BF16). Throws std::runtime_error, which names the file and the tensor, if they differ. Runs no
  // torch operator.
  explicit HuggingFaceFolder(const std::string& folder);
  HuggingFaceFolder(const HuggingFaceFolder&) = delete;

  const ModelShape& shape() const { return shape_; }
  // Returns the parameters of our model of the shape that config.json describes.
  std::vector<ModelState::Parameter> parameters() const { return parameters_of(tensors_); }

  // If the head is tied and the files have a tensor with the head's name, throws std::runtime_error
  // unless that tensor equals the embedding. Compares only piece number `part` of the tensor and
  // every `parts`-th piece after it, so that ranks can share the comparison.
  void check_head(int part, int parts) const;

  // Copies the values of `range`, a part of one parameter, from the files to the range. Reads only
  // the elements of the range or, if the file has the tensor transposed, the whole columns in which
  // they are.
  void read(const StateRange& range) const;

 private:
  struct Source {
    std::string name;  // name of the tensor in the file
    const HuggingFaceTensor* tensor;
    const SafetensorsReader* file;
    const SafetensorsReader::Entry* entry;

    // Reads from the file the elements of our parameter from index `begin` up to, but without,
    // `end`, counted in the order of our parameter. Returns them as a tensor [end - begin].
    at::Tensor read(int64_t begin, int64_t end) const;
    at::Tensor read_columns(int64_t begin, int64_t end) const;
  };
  void add(const Source& source, bool head);

  ModelShape shape_;
  std::vector<HuggingFaceTensor> tensors_;
  // Name of a file in the folder -> its reader.
  std::map<std::string, std::unique_ptr<SafetensorsReader>> files_;
  // Name of our parameter, or kHeadName for the copy of a tied head -> the tensor with its values.
  std::map<std::string, Source> sources_;
};

// Collective. Reads the values of this rank's ranges in `state`, except those of LoRA adapters,
// from the Hugging Face folder. Throws std::runtime_error on every rank: before any value changes,
// what HuggingFaceFolder's constructor and check_head() throw, or if the model has other
// parameters; later, if a file can't be read.
void load_hugging_face(const std::string& folder, const ModelState& state, Communicator& comm);

}  // namespace fsdp
