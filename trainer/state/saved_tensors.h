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

// Throws std::runtime_error unless the file `saved` in `folder` has the size and the hash that
// `saved` gives. The content of a file that fails this check must not be used.
void check_file(const std::string& folder, const SavedFile& saved);

// The tensors in the files of a checkpoint, by parameter and kind. This object holds no values;
// read() reads them from the files. Every function throws std::runtime_error, which names the file
// or the tensor.
class SavedTensors {
 public:
  // Reads the headers of all files, and compares them with `parameters`, the parameters of the
  // model. The caller must have called check_file() for each file, and `parameters` must outlive
  // this object. `locate` may be empty if only whole parameters are read.
  SavedTensors(const std::string& folder, const Description& description,
               const std::vector<ModelState::Parameter>& parameters, Locate locate);

  // Throws std::runtime_error unless the files have every element that read(range, kind) would
  // read.
  void check(const StateRange& range, StateKind kind) const { items_of(range, kind); }
  // Reads the values of the tensor of kind `kind` that `range` has from the files into this tensor.
  void read(const StateRange& range, StateKind kind) const;

 private:
  struct Place {
    const SafetensorsReader* file;
    const SafetensorsReader::Entry* entry;
  };
  // The saved tensors of one kind of one parameter: places[i] has the elements of ranges[i] or, if
  // the kind is `step`, their step count.
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
  // The tensors in the files: for each kind, the name of a parameter -> its saved tensors of this
  // kind.
  std::array<std::map<std::string, Saved>, kStateKinds.size()> saved_;
  Locate locate_;
};

// The parameters of a checkpoint, for one process that reads them one after the other.
struct SavedParameters {
  Checkpoint checkpoint;
  std::vector<ModelState::Parameter> parameters;
  std::unique_ptr<SavedTensors> tensors;

  // Reads the values of the parameter into `whole`, which must be fp32, contiguous, on the CPU, and
  // of the parameter's shape.
  void read(const ModelState::Parameter& parameter, const at::Tensor& whole) const;
};

// Opens the checkpoint that find_checkpoint(path) finds. Throws std::runtime_error if a file does
// not have the hash that checkpoint.json gives.
SavedParameters open_parameters(const std::string& path);

}  // namespace fsdp
