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
inline const std::string kUnfinished = ".part";  // the end of the name of a folder

struct SavedFile {
  std::string name;
  int64_t bytes{};
  std::string sha256;
};
void to_json(nlohmann::ordered_json& json, const SavedFile& file);
void from_json(const nlohmann::ordered_json& json, SavedFile& file);

std::string step_folder(const std::string& directory, int64_t step);

// The folders of checkpoints in `directory`, by step.
std::map<int64_t, std::string> step_folders(const std::string& directory);

// Writes a file of a folder. Returns when it is on the disk.
SavedFile write_text(const std::string& folder, const std::string& name, const std::string& text);

// Writes checkpoint.json and SHA256SUMS. Returns when everything in `folder` is on the disk.
void write_description(const std::string& folder, nlohmann::ordered_json description,
                       const std::vector<SavedFile>& files);

// checkpoint.json, whose hash was compared, and the files with the hashes that they should have.
// Throws std::runtime_error naming the file.
struct Description {
  nlohmann::ordered_json json;
  std::vector<SavedFile> files;
};
Description read_description(const std::string& folder);

// How a checkpoint names its tensors: "NAME/exp_avg:0-16". Without a kind it is the parameter's
// values, and without a range it is whole.
struct TensorName {
  std::string parameter;
  StateKind kind{};
  std::optional<std::pair<int64_t, int64_t>> range;  // [elements] begin and end

  std::string text() const;
  static TensorName parse(const std::string& text);
};

}  // namespace fsdp
