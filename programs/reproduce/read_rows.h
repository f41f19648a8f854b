#pragma once

#include <reproduce/row.h>

#include <string>

namespace fsdp {

// Reads the rows of tables.toml from `text`, the content of `file`. Throws TomlError, whose text is
// one line with the file and the line number, for mistakes such as these:
// - the text is not TOML; a key is unknown or missing, or has a value of another type;
// - two rows have the same name, or a row has neither tables nor a command;
// - a table of train has a column that no run of train has; a table of another program has a column
//   that is not in its `read`; or `read` names a column that the table lacks;
// - a line has not as many labels or published values as its table, or more cells than columns.
Rows read_rows(const std::string& text, const std::string& file);

// Returns the rows that tables.toml had when this program was built.
const Rows& rows_of_tables_toml();

}  // namespace fsdp
