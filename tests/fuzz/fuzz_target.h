#pragma once

#include <digest/sha256.h>

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <common/temporary_folder.h>

namespace fsdp {

// Readers of what comes from outside. Each takes any bytes, writes what it needs into the folder,
// which is empty, and returns whether they were accepted.
using Read = bool(const std::string& input, const TemporaryFolder& folder);
Read read_checkpoint, read_hugging_face, read_launcher, read_safetensors, read_token_files,
    read_train_options;

inline void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// The files of an input, between two of them a line "%%". At least `count`, the last ones empty.
inline std::vector<std::string> files_in(std::string input, size_t count) {
  const std::string cut = "\n%%\n";
  std::vector<std::string> files;
  for (size_t end; (end = input.find(cut)) != std::string::npos; input.erase(0, end + cut.size()))
    files.push_back(input.substr(0, end));
  files.push_back(input);
  files.resize(std::max(files.size(), count));
  return files;
}

// Of a file, as sha256sum -c reads it.
inline std::string sum_line(const std::string& text, const std::string& name) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex() + "  " + name + '\n';
}

// Whether `read` returns. If not, it has to throw an `Error` in one line that contains `name`.
// Without a name the line may repeat what somebody has typed.
template <class Error, class Action>
bool accepts(const std::string& name, Action read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    const std::string what = error.what();
    const bool single = what.find_first_of(std::string("\0\n\r\x1b", 4)) == std::string::npos;
    if (single && what.find(name) != std::string::npos && (name.empty() || what.size() < 2000))
      return false;
    throw std::logic_error("this is not one line that says where: " + what);
  }
}

}  // namespace fsdp
