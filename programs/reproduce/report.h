#pragma once

#include <reproduce/table.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// The report on a row of tables.toml: its tables, its name, and the command that makes the tables.
struct Report {
  std::string name, command;
  std::vector<Table> tables;

  std::string verdict() const;  // "ok" or "NOT OK"
  std::string markdown() const;

  // Writes two files into `folder`, which it creates if necessary:
  // - NAME.md has the tables;
  // - NAME.json has a line with command, verdict, date, commit, machine and versions, and then a
  //   line for each training run in `runs`.
  // Throws: std::runtime_error that names the file if a file can't be written.
  void write(const std::filesystem::path& folder, const nlohmann::ordered_json& runs) const;
};

// Returns the verdict of the row `name`, read from the file NAME.json in the first of `folders`
// that has this file; "not run" if none has it.
std::string last_verdict(const std::vector<std::filesystem::path>& folders,
                         const std::string& name);

}  // namespace fsdp
