#pragma once

#include <reproduce/table.h>
#include <reproduce/train_runs.h>

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp {

struct Report {
  std::string command;
  std::vector<Table> tables;

  bool ok() const;

  // Writes NAME.md with the tables, and NAME.json with lines of JSON: the tables, and then a line
  // for each of `runs`. Both have machine, versions and commit. Makes `folder` if it does not
  // exist. Throws std::runtime_error naming a file that can't be written.
  void write(const std::filesystem::path& folder, const std::string& name,
             const nlohmann::ordered_json& runs) const;
};

}  // namespace fsdp
