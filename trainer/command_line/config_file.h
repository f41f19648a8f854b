#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fsdp {

// A line of a file of options. "steps = 200" means "--steps 200".
struct ConfigLine {
  std::string name;  // name of the option, without dashes
  std::vector<std::string> values;
  // Number of the line in the file, counted from 1. If the values take several lines, the first of
  // them.
  int number{};
  // Name of the table that the line is in; empty if the line stands before the first table.
  std::string table;
};

// Returns the options that `text` gives, in TOML. Skips empty lines and comments (#). Other lines
// are:
// - "steps = 200": a name, =, and a number, true, false, a text in quotes, or such values in
//   brackets, which may take several lines. In a text everything between the quotes counts: a
//   backslash stands for itself.
// - "[training]": begins a table, to which the lines up to the next such line belong.
// Throws: std::invalid_argument "line 3: ..." for anything else, and if two lines have the same
// name or begin the same table.
std::vector<ConfigLine> read_config(const std::string& text);

// Returns the lines of the file that "--config FILE" or "--config=FILE" in `arguments` names; an
// empty list if no argument names a file or if it can't be read. Throws UsageError for a mistake in
// the file.
std::vector<ConfigLine> config_among(const std::vector<std::string>& arguments);

// Adds the option "--config FILE" to `app`.
// - If an option is on the command line and in the file, the value on the command line is used.
// - The tables of the file have the names of the groups of options in the help. An option must
//   stand in the table of its group, or before all tables.
// - For a mistake in the file, the parser throws UsageError, which names the file and the line.
void add_config_option(CLI::App& app);

// Returns a text in the format of --config that sets every option that was given, with its value,
// except options for which `left_out` returns true.
std::string config_of(const CLI::App& app,
                      const std::function<bool(const CLI::Option& option)>& left_out);

// Returns the place in the file of --config from which the value of `option` ("--NAME") comes, such
// as " (line 3 of run.toml)"; "" if the value does not come from the file.
std::string place_in_config(const CLI::App& app, const std::string& option);

}  // namespace fsdp
