#pragma once

#include <reproduce/row.h>

#include <string>

namespace fsdp {

// Reads what `text`, the content of `file`, says of the rows. Throws TomlError, one line with the
// file and the line, for a mistake:
// - no TOML; an unknown key, a missing one, or a value of another type;
// - two rows of one name, or a row that nothing shows;
// - a column that no run of train has, or of another program, one without `read`; `read` of a
//   column that the table lacks;
// - a line with more or fewer texts than its table has columns for them.
Rows read_rows(const std::string& text, const std::string& file);

// What tables.toml said when this program was built.
const Rows& rows_of_tables_toml();

}  // namespace fsdp
