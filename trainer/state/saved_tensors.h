#pragma once

#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <state/safetensors.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// Throws std::runtime_error unless the file in `folder` has the size and the hash that it should
// have. The content of a file that fails must not be used.
void check_file(const std::string& folder, const SavedFile& saved);

// The tensors in the files of a checkpoint, by parameter and kind. This object holds no values;
// read() reads them. Every function throws std::runtime_error, which names the file or the tensor.
class SavedTensors {
 public:
  // Compares the headers of all files with the parameters of the model. check_file() must have
  // accepted the files, and `parameters` must outlive this object. `locate` may be empty if only
  // whole parameters are read.
  SavedTensors(const std::string& folder, const Description& description,
               const std::vector<ModelState::Parameter>& parameters, Locate locate);

  // Throws unless read() would find every element of the range.
  void check(const StateRange& range, StateKind kind) const { items_of(range, kind); }
  // Fills the range's tensor of this kind.
  void read(const StateRange& range, StateKind kind) const;

 private:
  struct Place {
    const SafetensorsReader* file;
    const SafetensorsReader::Entry* entry;
  };
  // The tensors of a parameter: places[i] has the elements of ranges[i], or their step count.
  struct Saved {
    std::vector<ElementRange> ranges;
    std::vector<Place> places;
  };

  const Saved& saved(const std::string& parameter, StateKind kind) const;
  std::vector<ReadItem> items_of(const StateRange& range, StateKind kind) const;
  void check_parameters(const std::vector<ModelState::Parameter>& saved,
                        const std::vector<ModelState::Parameter>& own) const;
  void add_file(const SavedFile& file);
  void add(const TensorName& name, const SafetensorsReader& file,
           const SafetensorsReader::Entry& entry);
  void check_cover(StateKind kind) const;

  std::string folder_;
  std::vector<SavedFile> saved_files_;
  std::map<std::string, const ModelState::Parameter*> parameters_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::array<std::map<std::string, Saved>, kStateKinds.size()> saved_;  // by parameter
  Locate locate_;
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
