#include <state/checkpoint_folder.h>
#include <state/folder_kind.h>

#include <filesystem>

namespace fsdp {

FolderKind kind_of_folder(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  if (!fs::exists(path, unknown)) return FolderKind::missing;
  if (!fs::is_directory(path, unknown)) return FolderKind::file;
  if (fs::exists(fs::path(path) / kDescriptionFile, unknown) || !step_folders(path).empty())
    return FolderKind::checkpoint;
  if (fs::exists(fs::path(path) / kConfigFile, unknown)) return FolderKind::hugging_face;
  return FolderKind::other;
}

std::string reason_for_no_checkpoint(const std::string& path) {
  switch (kind_of_folder(path)) {
    case FolderKind::missing:
      return "no such folder";
    case FolderKind::file:
      return "is a file; give the folder of a checkpoint";
    case FolderKind::hugging_face:
      return "is a Hugging Face folder, not a checkpoint; train and generate take it as --init hf:" +
             path;
    default:
      return "is not a checkpoint, and has none (step-000001, ...)";
  }
}

}  // namespace fsdp
