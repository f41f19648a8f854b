#pragma once

#include <reproduce/read_rows.h>

#include <string>

namespace fsdp {

// Returns the text of a file that has one row, "row". The row has a table with the title "Title"
// and the lines `table`, which are TOML. The first of these lines is line 11 of the file.
inline std::string file_of_table(const std::string& table) {
  return "legend = \"Documents\"\n\n[[row]]\nname = \"row\"\nsource = \"Writeup 1\"\n"
         "kind = \"measured\"\nminutes = 1\nwhen = \"all\"\n[[row.table]]\ntitle = \"Title\"\n" +
         table;
}

inline TableOfRow table_of_text(const std::string& table) {
  return read_rows(file_of_table(table), "tables.toml").rows.at(0).tables.at(0);
}

}  // namespace fsdp
