#pragma once

#include <reproduce/train_runs.h>

#include <string>
#include <vector>

namespace fsdp {

// A run of train whose results fill a line of a table.
struct RunOfLine {
  const TrainOptions& options;
  const TrainResult& result;
  const TrainResult& first;  // result of the first run of train in this table
  // A function that makes a further run of train, for columns that compare this run with another
  // one.
  const Train& train;
};

// Returns the names of the columns that can be filled from a run of train.
std::vector<std::string> names_of_columns();

// Returns the cell of the column `column`. Throws std::out_of_range if there is no such column,
// nlohmann::json::out_of_range if the results lack the number, and what run.train throws.
std::string cell_of(const std::string& column, const RunOfLine& run);

}  // namespace fsdp
