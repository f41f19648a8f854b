#pragma once

#include <reproduce/train_runs.h>

#include <string>
#include <vector>

namespace fsdp {

// The run of train that fills a line of a table.
struct RunOfLine {
  const TrainOptions& options;
  const TrainResult& result;
  const TrainResult& first;  // of the table's first run
  const Train& train;        // for a column that compares with another run
};

// The columns that a run of train can fill.
std::vector<std::string> names_of_columns();

// The cell of this column. Throws std::out_of_range for another name, what `train` throws, and what
// nlohmann::json throws if the run lacks the number.
std::string cell_of(const std::string& column, const RunOfLine& run);

}  // namespace fsdp
