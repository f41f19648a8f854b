#pragma once

#include <filesystem>
#include <iterator>
#include <string>

// Counts the files and folders directly inside `folder`.
namespace fsdp {

inline auto files_in(const std::string& folder) {
  using Entries = std::filesystem::directory_iterator;
  return std::distance(Entries(folder), Entries());
}

}  // namespace fsdp
