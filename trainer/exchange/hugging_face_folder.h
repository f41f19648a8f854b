#pragma once

#include <comm/communicator.h>
#include <nn/gpt2.h>
#include <state/model_state.h>
#include <state/safetensors.h>

#include <map>
#include <string>
#include <vector>

namespace fsdp {

// A folder with config.json and model.safetensors, as GPT2LMHeadModel.save_pretrained() writes it
// and as we export it. Names may lack "transformer.". The buffers attn.bias and attn.masked_bias
// are not read. It holds no values: read() reads them.
class HuggingFaceFolder {
 public:
  // Compares the header of the file with config.json: names, shapes and dtypes (F32, F16, BF16).
  // Throws std::runtime_error, which names the file and the tensor. Runs no torch operator.
  explicit HuggingFaceFolder(const std::string& folder);
  HuggingFaceFolder(const HuggingFaceFolder&) = delete;

  const GPT2Options& options() const { return options_; }
  // Of our GPT2 of this size.
  const std::vector<ModelState::Parameter>& parameters() const { return parameters_; }

  // If the file has a head, throws unless it equals the embedding: in every `parts`-th piece of
  // them, from `part` on.
  void check_head(int part, int parts) const;

  // Fills the range's values. Reads the elements of the range, and of a transposed tensor the
  // columns that have one.
  void read(const StateRange& range) const;

 private:
  struct Source {
    std::string name;  // in the file
    const SafetensorsReader::Entry* entry;
    bool transposed;
  };
  [[noreturn]] void refuse(const std::string& tensor, const std::string& what) const;
  void add(const std::string& name, const SafetensorsReader::Entry& entry,
           const std::map<std::string, const ModelState::Parameter*>& expected);
  at::Tensor elements(const SafetensorsReader::Entry& entry, int64_t begin, int64_t end) const;
  at::Tensor transposed_elements(const SafetensorsReader::Entry& entry, int64_t begin,
                                 int64_t end) const;

  GPT2Options options_;
  std::vector<ModelState::Parameter> parameters_;
  SafetensorsReader file_;
  std::map<std::string, Source> sources_;  // by our name
};

// Fills the values of this rank's ranges. All ranks call it together. Throws std::runtime_error on
// every rank before it changes a value: what HuggingFaceFolder throws, or if the model has other
// parameters.
void load_hugging_face(const std::string& folder, const ModelState& state, Communicator& comm);

}  // namespace fsdp
