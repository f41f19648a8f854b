#pragma once

#include <reproduce/tables.h>

#include <string>
#include <vector>

namespace fsdp {

// The lines of `text`, without empty ones; one that begins with a space belongs to the one before.
std::vector<std::string> whole_lines(const std::string& text);

std::vector<std::string> split(const std::string& text, const std::string& separator);

// The tables that these lines describe; registry.h reads the first line of a row.
//
// # number, name | document and place | kind | minutes | set | command; or "as" another row
// = title of a table
// $ options of all runs     % NAME options for $NAME in what follows
// : columns of the labels; columns that a run fills (cells.cpp); columns with given values
// * labels | options | values     a run; a line is ok if its bytes are as predicted
// -                               one that ends with the parameters of the last * as well
// !                               one that may fail: then it has these values, and a note says how
// @ labels | command | beginning of a line of its output | words of it | another line | ... |
// values
//                                   a word is its number, and what stands behind it in the cell
// . cells           a line without a run; > a note
// x factor | value: options | ...   y the same, of options that one process does not need
// p options | options | ...   runs in which every two values of every two factors meet; each ends
//                 with the parameters of runs with the values of x and these options
// A line that begins with a space goes on with the one before it.
Tables described_tables(const std::vector<std::string>& lines, const Train& train,
                        const Output& output);

// What goes into a column of the name. `first`: the run of the table's first line.
std::string cell_of(const std::string& column, const Train& train, const TrainOptions& options,
                    const TrainResult& run, const TrainResult& first);

}  // namespace fsdp
