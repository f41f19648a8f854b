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

  // Writes NAME.md, and NAME.json: a line of JSON with verdict, machine, versions and commit, and
  // then a line for each of `runs`. Makes `folder` if it does not exist. Throws std::runtime_error
  // naming a file that can't be written.
  void write(const std::filesystem::path& folder, const nlohmann::ordered_json& runs) const;
};

// What follows `key` and a separator in the first line of a file that starts with it.
std::string field(const std::filesystem::path& file, const std::string& key);

// The verdict in NAME.json; "not run" if there is no such file.
std::string last_verdict(const std::filesystem::path& folder, const std::string& name);

}  // namespace fsdp
