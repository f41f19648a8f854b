#pragma once

#include <reproduce/tables.h>

#include <string>
#include <vector>

namespace fsdp {

// The lines of `text`, without empty ones; one that begins with a space belongs to the one before.
std::vector<std::string> whole_lines(const std::string& text);

std::vector<std::string> split(const std::string& text, const std::string& separator);

// The tables that these lines describe, as rows.cpp says.
Tables described_tables(const std::vector<std::string>& lines, const Train& train,
                        const Output& output);

// What goes into a column of the name. `first`: the run of the table's first line.
std::string cell_of(const std::string& column, const Train& train, const TrainOptions& options,
                    const TrainResult& run, const TrainResult& first);

}  // namespace fsdp
