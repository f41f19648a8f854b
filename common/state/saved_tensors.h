#pragma once

#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <state/safetensors.h>
#include <state/tensor_name.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// The tensors in the files of a checkpoint, by parameter and kind. It holds no values: read() reads
// them. Every function throws std::runtime_error, which names the file or the tensor.
class SavedTensors {
 public:
  // Compares the headers of all files with the parameters of the model, which outlive this object.
  SavedTensors(const std::string& folder, const Description& description,
               const std::vector<ModelState::Parameter>& parameters);

  // Throws unless file `index` of the description has the hash that it should have.
  void check_hash(size_t index) const;
  // Throws unless every element of the parameter has this kind of state.
  void check_has(const std::string& parameter, StateKind kind) const {
    sources_of(parameter, kind);
  }
  // Fills the range's tensor of this kind.
  void read(const StateRange& range, StateKind kind) const;

 private:
  // Neighbouring elements of a parameter, or the step count of such, in one of the files.
  struct Source {
    int64_t begin, end;  // [elements] of the parameter
    const SafetensorsReader* file;
    const SafetensorsReader::Entry* entry;
  };
  using Key = std::pair<std::string, StateKind>;

  const std::vector<Source>& sources_of(const std::string& parameter, StateKind kind) const;
  void check_parameters(const std::vector<ModelState::Parameter>& saved,
                        const std::vector<ModelState::Parameter>& own) const;
  void add_file(const SavedFile& file);
  void add(const TensorName& name, const SafetensorsReader& file,
           const SafetensorsReader::Entry& entry);
  void check_cover(const Key& key, std::vector<Source>& sources) const;

  std::string folder_;
  std::vector<SavedFile> saved_files_;
  std::map<std::string, const ModelState::Parameter*> parameters_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<Key, std::vector<Source>> sources_;  // in the order of the elements
};

// The parameters of a checkpoint, for one process that reads them one after the other.
struct SavedParameters {
  Checkpoint checkpoint;
  std::vector<ModelState::Parameter> parameters;
  std::unique_ptr<SavedTensors> tensors;

  // Fills `whole`, which is fp32, contiguous and on the CPU, and shaped as the parameter.
  void read(const ModelState::Parameter& parameter, const at::Tensor& whole) const;
};

// Opens the checkpoint that find_checkpoint(path) finds, and compares the hashes of all files.
SavedParameters open_parameters(const std::string& path);

}  // namespace fsdp
