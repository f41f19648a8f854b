#pragma once

#include <string>

namespace fsdp {

// Has the type and the sizes of a model in a folder of Hugging Face's transformers.
inline const std::string kConfigFile = "config.json";

enum class FolderKind { missing, file, checkpoint, hugging_face, other };

// Returns what `path` names: nothing, a file, a folder with a checkpoint or with folders of
// checkpoints, a folder with the config.json of a Hugging Face model, or another folder. So a
// message about a wrong folder can name the option that takes it.
FolderKind kind_of_folder(const std::string& path);

// Returns why there is no checkpoint at `path`, and for a Hugging Face folder what takes it: "is a
// Hugging Face folder, not a checkpoint; ...".
std::string reason_for_no_checkpoint(const std::string& path);

}  // namespace fsdp
