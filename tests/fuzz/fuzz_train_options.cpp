#include <trainer/parsed.h>

#include "fuzz_target.h"

// The input has four files: the arguments, one in a line; o.toml; s/checkpoint.json; h/config.json.
// In the first two files, @ stands for `folder` with a slash. All other slashes in them are
// replaced, so that no path leads outside of the folder.
bool fsdp::read_train_options(const std::string& input, const TemporaryFolder& folder) {
  auto files = files_in(input, 4);
  for (size_t i : {0, 1}) {
    std::erase_if(files[i], [](unsigned char c) { return c < ' ' && c != '\n'; });
    replace_all(files[i], "/", "_");
    replace_all(files[i], "..", "__");
    replace_all(files[i], "@", folder.path() + '/');
  }
  folder.write("o.toml", files[1]);
  folder.write("s/checkpoint.json", files[2]);
  folder.write("s/SHA256SUMS", sum_line(files[2], "checkpoint.json"));
  folder.write("h/config.json", files[3]);
  // README.md is the text that a run trains on by default.
  folder.write("README.md", "a text of eight words that is short");
  folder.write("tokens", "abcdefgh");
  setenv("FSDP_ROOT", folder.path().c_str(), 1);
  std::filesystem::current_path(folder.path());
  Arguments arguments;
  std::istringstream lines(files[0]);
  for (std::string line; std::getline(lines, line);) {
    // --help would end the process.
    if (line.starts_with("-h") || line.starts_with("--help")) continue;
    arguments.push_back(line);
  }
  return accepts<UsageError>("", [&] { parsed(arguments); });
}
