#pragma once

#include <reproduce/train_runs.h>

#include <string>
#include <vector>

namespace fsdp {

// The run of train that fills a line of a table.
struct RunOfLine {
  const TrainOptions& options;
  const TrainResult& result;
  const TrainResult& first;  // result of the table's first run
  const Train& train;        // makes further runs, for columns that compare with another run
};

// Returns the names of the columns that a run of train can fill.
std::vector<std::string> names_of_columns();

// Returns the cell of this column. Throws std::out_of_range if there is no such column, what
// `train` throws, and nlohmann::json::out_of_range if the run lacks the number.
std::string cell_of(const std::string& column, const RunOfLine& run);

}  // namespace fsdp
