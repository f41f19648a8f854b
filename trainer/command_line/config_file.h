#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace fsdp {

// A line of a file of options: "steps = 200", which says what "--steps 200" says.
struct ConfigLine {
  std::string name;  // of the option, without dashes
  std::vector<std::string> values;
  int number{};       // of the line, from 1 on
  std::string table;  // in which it stands; empty: before the first table
};

// Returns the options that `text` gives, in TOML:
// - a line "steps = 200": a name, =, and a number, true, false, a text in quotes, or such values in
//   brackets, which may take several lines. In a text everything between the quotes counts: a
//   backslash stands for itself.
// - a line "[training]" begins a table, to which the lines up to the next one belong.
// Throws std::invalid_argument "line 3: ..." for anything else, and for a name or a table that
// comes twice.
std::vector<ConfigLine> read_config(const std::string& text);

// The lines of the file that "--config FILE" or "--config=FILE" names among `arguments`; nothing if
// there is none, or if it can't be read. Throws UsageError for a mistake in it.
std::vector<ConfigLine> config_among(const std::vector<std::string>& arguments);

// Adds "--config FILE". What the command line gives counts more than the file. The tables of the
// file are the groups of the options: an option stands in the table of its group, or before all
// tables. A mistake in the file is a UsageError, which names the file and the line.
void add_config_option(CLI::App& app);

// Returns what such a file has to say so that the options are those that were given, without those
// in `left_out`.
std::string config_of(const CLI::App& app, const std::vector<std::string>& left_out);

// " (line 3 of run.toml)" if that is where the value of "--NAME" comes from; else nothing.
std::string place_in_config(const CLI::App& app, const std::string& option);

}  // namespace fsdp
