#pragma once

#include <reproduce/gpt2xl.h>
#include <reproduce/row.h>

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp {

// The command line of `./fsdp reproduce`.
struct ReproduceSettings {
  std::vector<std::string> only;
  std::string audit;  // name of the row whose receipts are audited; empty: reproduce runs rows
  // Folder that gets the results: the value of --out, writeup/ with --write, else build/reproduce.
  std::string out;
  bool list{}, all{}, by_hand{}, full{}, write{};
  FullSettings run;

  // Returns whether this command line asks to run the row.
  bool wants(const Row& row) const;
  // Returns the folders in which --list looks for verdicts: `out`, and writeup/ unless --out is
  // given. If both have a verdict of a row, --list shows the one in `out`.
  std::vector<std::filesystem::path> verdict_folders() const;
};

// Parses the arguments, without the program's name. Throws UsageError if they are wrong. With
// --help, prints the help and exits with 0.
ReproduceSettings parse_reproduce(const std::vector<std::string>& arguments,
                                  const std::vector<Row>& rows);

}  // namespace fsdp
