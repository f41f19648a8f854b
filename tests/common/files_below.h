#pragma once

#include <base/whole_file.h>

#include <filesystem>
#include <map>
#include <string>

// Reads all files of a folder, to compare two folders.
namespace fsdp {

// Returns the contents of all files in `folder` and below it, by their paths inside it.
inline std::map<std::string, std::string> files_below(const std::string& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      contents[std::filesystem::relative(entry.path(), folder)] = content_of(entry.path());
  return contents;
}

}  // namespace fsdp
