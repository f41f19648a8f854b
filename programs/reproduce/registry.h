#pragma once

#include <reproduce/full.h>
#include <reproduce/tables.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

extern const char* const kRows;  // the text that describes the rows

// A table, figure or claim of the published documents, and what shows it here.
struct Row {
  int number{};
  std::string name;     // for --only
  std::string source;   // document and place
  std::string kind;     // measured, planned, arithmetic, published, test
  int minutes{};        // on two cores
  std::string set;      // usual: run by default; all, long: by that option; never; "as NAME"
  std::string command;  // shows it
  std::function<Tables(TrainRuns&)> make;  // null if the command makes no table
};

// The 35 rows, in order. `full` is how number 1 runs.
std::vector<Row> registry(const FullSettings& full);

// The rows in 100 columns, with the last verdict of each, read from the folder `results`.
std::string list(const std::vector<Row>& rows, const std::filesystem::path& results);

}  // namespace fsdp
