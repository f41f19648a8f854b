#pragma once

#include <reproduce/table.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// The tables of a row, and what they were made from.
struct Report {
  std::string name, command;
  std::vector<Table> tables;

  std::string verdict() const;  // "ok" or "NOT OK"
  std::string markdown() const;

  // Writes NAME.md; and NAME.json: a line of JSON with verdict, machine, versions and commit, and
  // then a line for each of `runs`. Creates `folder` if it does not exist. Throws
  // std::runtime_error that names the file if one can't be written.
  void write(const std::filesystem::path& folder, const nlohmann::ordered_json& runs) const;
};

// The verdict in NAME.json of the first of these folders that has this file; "not run" if none has.
std::string last_verdict(const std::vector<std::filesystem::path>& folders,
                         const std::string& name);

}  // namespace fsdp
