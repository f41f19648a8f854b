#pragma once

#include <string>

namespace fsdp {

// The file that has the type and the sizes of a model in a folder of Hugging Face's transformers.
inline const std::string kConfigFile = "config.json";

enum class FolderKind { missing, file, checkpoint, hugging_face, other };

// Returns what `path` is: nothing, a file, a folder with a checkpoint or with folders of
// checkpoints, a folder with the config.json of a Hugging Face model, or another folder. So a
// message about a wrong folder can name the option for which the folder is right.
FolderKind kind_of_folder(const std::string& path);

// Returns why there is no checkpoint at `path`, for example "no such folder". For a Hugging Face
// folder the text also names the option for which the folder is right: "is a Hugging Face folder,
// not a checkpoint; ...".
std::string reason_for_no_checkpoint(const std::string& path);

}  // namespace fsdp
