#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace fsdp {

// A line of a file of options: "steps = 200", which says what "--steps 200" says.
struct ConfigLine {
  std::string name;  // of the option, without dashes
  std::vector<std::string> values;
  int number{};  // of the line, from 1 on
};

// The options that `text` gives, in TOML: a name, =, and a number, true, false, a text in quotes,
// or such values in brackets, which may take several lines. Of a text everything between the quotes
// counts: a backslash stands for itself. Throws std::invalid_argument "line 3: ..." for anything
// else, and for a name that comes twice.
std::vector<ConfigLine> read_config(const std::string& text);

// The lines of the file that "--config FILE" or "--config=FILE" names among `arguments`; nothing if
// there is none, or if it can't be read. Throws UsageError for a mistake in it.
std::vector<ConfigLine> config_among(const std::vector<std::string>& arguments);

// Adds "--config FILE". What the command line gives counts more than the file. A mistake in the
// file is a UsageError, which names the file and the line.
void add_config_option(CLI::App& app);

// Returns what such a file has to say so that the options are those that were given, without those
// in `left_out`.
std::string config_of(const CLI::App& app, const std::vector<std::string>& left_out);

// " (line 3 of run.toml)" if that is where the value of "--NAME" comes from; else nothing.
std::string place_in_config(const CLI::App& app, const std::string& option);

}  // namespace fsdp
