#pragma once

#include <digest/sha256.h>

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <common/temporary_folder.h>

namespace fsdp {

// Each target passes an input of any bytes to a reader of files, options or variables. It writes
// what the reader needs to `folder`, which is empty. It returns whether the reader accepted the
// input, and throws std::logic_error if the reader did something wrong.
using Read = bool(const std::string& input, const TemporaryFolder& folder);
Read read_checkpoint, read_hugging_face, read_launcher, read_safetensors, read_token_files,
    read_train_options;

inline void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// Splits an input into files at the lines "%%". Returns at least `count` files; the missing ones
// are empty.
inline std::vector<std::string> files_in(std::string input, size_t count) {
  const std::string cut = "\n%%\n";
  std::vector<std::string> files;
  for (size_t end; (end = input.find(cut)) != std::string::npos; input.erase(0, end + cut.size()))
    files.push_back(input.substr(0, end));
  files.push_back(input);
  files.resize(std::max(files.size(), count));
  return files;
}

// Returns the line that `sha256sum -c` reads for a file `name` that contains `text`.
inline std::string sum_line(const std::string& text, const std::string& name) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex() + "  " + name + '\n';
}

// Returns true if `read` returns, and false if it throws an `Error` whose message is one line of
// fewer than 2000 bytes that contains `name`. If `name` is empty, the line may be longer, because
// it may repeat what a user has typed. Throws std::logic_error if `read` throws an `Error` with
// another message.
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
    throw std::logic_error("the message is not one line that names the file or folder: " + what);
  }
}

}  // namespace fsdp
