#pragma once

#include <state/model_state.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// This file has functions for the folders of checkpoints, and for the files checkpoint.json and
// SHA256SUMS in these folders.
namespace fsdp {

inline const std::string kDescriptionFile = "checkpoint.json";
inline const std::string kSumsFile = "SHA256SUMS";
// The end of the name of a checkpoint's folder until the checkpoint is complete.
inline const std::string kUnfinished = ".part";

struct SavedFile {
  std::string name;
  int64_t bytes{};
  std::string sha256;
};
void to_json(nlohmann::ordered_json& json, const SavedFile& file);
void from_json(const nlohmann::ordered_json& json, SavedFile& file);

std::string step_folder(const std::string& directory, int64_t step);

// Returns the paths of the folders of complete checkpoints in `directory`, by step.
std::map<int64_t, std::string> step_folders(const std::string& directory);

// Returns the folder of the checkpoint in which a file written to `path` would lie: `checkpoint`,
// or one of the checkpoints beside it. Returns "" if the file would lie in none of them.
std::string checkpoint_in_which_lies(const std::string& path, const std::string& checkpoint);

// Does what remove_old_checkpoints(directory, keep) does, but also keeps the checkpoint of step
// `held`, if there is one.
void remove_old_checkpoints(const std::string& directory, int64_t keep, int64_t held);

// Writes the file `name` with the content `text` into `folder`. Returns when the file is on the
// disk.
SavedFile write_text(const std::string& folder, const std::string& name, const std::string& text);

// Writes checkpoint.json, which has `description` and `files`, and SHA256SUMS into `folder`.
// Returns when everything in `folder` is on the disk.
void write_description(const std::string& folder, nlohmann::ordered_json description,
                       const std::vector<SavedFile>& files);

// The content of checkpoint.json, and its list of the checkpoint's safetensors files with the sizes
// and hashes that they should have.
struct Description {
  nlohmann::ordered_json json;
  std::vector<SavedFile> files;
};
// Reads checkpoint.json in `folder`, and compares its hashes with those in SHA256SUMS. Throws
// std::runtime_error, which names the file, if checkpoint.json or SHA256SUMS is damaged or can't be
// read.
Description read_description(const std::string& folder);

// The name of a tensor in a checkpoint, for example "NAME/exp_avg:0-16". If the name has no kind (a
// part such as /exp_avg), the tensor has the values of the parameter NAME. If the name has no
// range, the tensor is whole.
struct TensorName {
  std::string parameter;
  StateKind kind{};
  // Begin and end of the range of elements that the tensor has, as indices of elements of the
  // parameter; empty: the tensor has all elements of the parameter.
  std::optional<std::pair<int64_t, int64_t>> range;

  std::string text() const;
  static TensorName parse(const std::string& text);
};

}  // namespace fsdp
