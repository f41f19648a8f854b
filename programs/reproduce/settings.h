#pragma once

#include <reproduce/gpt2xl.h>
#include <reproduce/row.h>

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp {

// The command line of `reproduce`.
struct ReproduceSettings {
  std::vector<std::string> only;
  std::string out;  // folder of the results: build/reproduce, writeup with --write, or of --out
  bool list{}, all{}, by_hand{}, full{}, write{};
  FullSettings run;

  // Whether this command line asks for the row.
  bool wants(const Row& row) const;
  // The folders whose verdicts --list shows: `out`, and writeup/ unless --out is given. If both
  // have a verdict of a row, that in `out` counts.
  std::vector<std::filesystem::path> verdict_folders() const;
};

// Parses the arguments, without the program's name. Throws UsageError. --help ends the process.
ReproduceSettings parse_reproduce(const std::vector<std::string>& arguments,
                                  const std::vector<Row>& rows);

}  // namespace fsdp
