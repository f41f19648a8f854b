#pragma once

#include <state/model_state.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// The folders and the small files of checkpoints.
namespace fsdp {

inline const std::string kDescriptionFile = "checkpoint.json";
inline const std::string kSumsFile = "SHA256SUMS";
// The end of a folder's name until its checkpoint is complete.
inline const std::string kUnfinished = ".part";

struct SavedFile {
  std::string name;
  int64_t bytes{};
  std::string sha256;
};
void to_json(nlohmann::ordered_json& json, const SavedFile& file);
void from_json(const nlohmann::ordered_json& json, SavedFile& file);

std::string step_folder(const std::string& directory, int64_t step);

// Returns the folders of checkpoints in `directory`, by step.
std::map<int64_t, std::string> step_folders(const std::string& directory);

// Does what remove_old_checkpoints(directory, keep) does, but keeps the checkpoint of step `held`.
void remove_old_checkpoints(const std::string& directory, int64_t keep, int64_t held);

// Writes a file into the folder. Returns when the file is on the disk.
SavedFile write_text(const std::string& folder, const std::string& name, const std::string& text);

// Writes checkpoint.json and SHA256SUMS. Returns when everything in `folder` is on the disk.
void write_description(const std::string& folder, nlohmann::ordered_json description,
                       const std::vector<SavedFile>& files);

// The content of checkpoint.json, and the files with the hashes that they should have.
struct Description {
  nlohmann::ordered_json json;
  std::vector<SavedFile> files;
};
// Reads checkpoint.json and compares its hash with the one in SHA256SUMS. Throws
// std::runtime_error, which names the file, if one of the two is damaged or can't be read.
Description read_description(const std::string& folder);

// The name of a tensor in a checkpoint: "NAME/exp_avg:0-16". Without a kind the tensor has the
// parameter's values, and without a range it is whole.
struct TensorName {
  std::string parameter;
  StateKind kind{};
  std::optional<std::pair<int64_t, int64_t>> range;  // [elements] begin and end

  std::string text() const;
  static TensorName parse(const std::string& text);
};

}  // namespace fsdp
